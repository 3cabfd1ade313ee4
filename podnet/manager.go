package podnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// Manager sets up and tears down the networks of pods.
type Manager struct {
	options Options
	conf    configuration
	notes   notes
	records *attach.Dir
	exec    libcni.Exec // without observers
	cni     *libcni.CNIConfig
}

// New returns a Manager after it has read the configuration directories once. Watch keeps it up to date. A missing
// network is not an error here; Status reports it.
func New(o Options) (*Manager, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m := &Manager{
		options: o, conf: configuration{dirs: o.ConfDirs, chosen: o.DefaultNetwork},
		notes: notes{o.StateDir}, records: attach.Open(o.RunDir), exec: o.Exec,
	}
	if m.exec == nil {
		m.exec = &invoke.RawExec{Stderr: os.Stderr}
	}
	m.cni = libcni.NewCNIConfigWithCacheDir(o.PluginDirs, o.CacheDir, observed(m.exec, o.Observers))
	m.cni.Warn = o.Warn
	m.conf.load()
	return m, nil
}

// Reload reads the configuration directories now.
func (m *Manager) Reload() { m.conf.load() }

// ErrExists is the error for a pod that is already set up with other settings.
var ErrExists = errors.New("the pod is set up already")

// bounded returns a context that ends with ctx or after Options.Timeout.
func (m *Manager) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, m.options.Timeout, fmt.Errorf("it took longer than %v: %w", m.options.Timeout, context.DeadlineExceeded))
}

// lasting returns a context that ends some time after ctx. A removal must finish even if the caller's context has
// ended.
func (m *Manager) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	over := fmt.Errorf("cleaning up took longer than %v: %w", m.options.CleanUpTime, context.DeadlineExceeded)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(m.options.CleanUpTime)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(over)
		case <-out.Done():
		}
	})
	return out, func() { stop(); cancel(context.Canceled) }
}

// known returns everything to detach from a pod: its note and the entries of libcni's cache. If there is neither, it
// uses Fairlead's records. If there are no records either, it returns eth0 on the default network, because plugins find
// their objects by owner alone.
func (m *Manager) known(ctx context.Context, id string) (*note, []*part, error) {
	n, err := m.notes.read(id)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.options.Warn("cannot read the state of pod "+id+"; its teardown continues", err)
	}
	var parts []*part
	if n != nil {
		path := sameNetns(n.Netns, n.namespace())
		for _, p := range n.Parts {
			parts = append(parts, m.recall(ctx, p, id, path))
		}
	}
	cached, cacheErr := m.cni.GetCachedAttachments(id)
	for _, a := range cached {
		if has(parts, a.Network, a.IfName) {
			continue
		}
		p := noted{Network: a.Network, IfName: a.IfName, Config: a.Config, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
		parts = append(parts, m.recall(ctx, p, id, sameNetns(a.NetNS, netns.IDAt(a.NetNS))))
	}
	if n == nil {
		recorded, err := m.recorded(ctx, id, parts)
		parts, cacheErr = append(parts, recorded...), errors.Join(cacheErr, err)
	}
	if len(parts) == 0 {
		if list, err := m.conf.find(""); err == nil {
			parts = append(parts, m.recall(ctx, noted{Network: list.Name, IfName: DefaultIfNamePrefix + "0"}, id, ""))
		}
	}
	return n, parts, cacheErr
}

// recorded returns the attachments of Fairlead's plugins that are not in known.
func (m *Manager) recorded(ctx context.Context, id string, known []*part) (out []*part, err error) {
	records, err := m.records.List("")
	for _, r := range records {
		if r.ContainerID == id && !has(known, r.Network, r.IfName) {
			out = append(out, m.recall(ctx, noted{Network: r.Network, IfName: r.IfName}, id, sameNetns(r.Netns, r.Namespace())))
		}
	}
	return out, err
}

func has(parts []*part, network, ifName string) bool {
	for _, p := range parts {
		if p.Network == network && p.IfName == ifName {
			return true
		}
	}
	return false
}

// recall creates a part from a note. Its configuration is the one of the part's setup, or else the network's current
// one, or none.
func (m *Manager) recall(ctx context.Context, n noted, id, netns string) *part {
	q := &part{noted: n}
	q.rt = q.runtimeConf(id, netns)
	if list, err := (&libcni.NetworkAttachment{Network: n.Network, Config: n.Config}).List(); err == nil {
		q.list = list
	} else if n.Network == loopbackNetwork {
		q.list, _ = loopback() // the list is constant, so it cannot fail
	} else if list, err := m.network(ctx, n.Namespace, n.Network); err == nil {
		q.list = list
	}
	if q.list != nil {
		q.alone = insideLinks(q.list)
	}
	return q
}

// sameNetns returns the path if it still refers to the namespace, else "". Plugins must not remove anything from
// another namespace at the same path.
func sameNetns(path string, id netns.ID) string {
	if is, _ := id.IsAt(path); !is { // whatever stat(2) says, the path leads nowhere
		return ""
	}
	return path
}
