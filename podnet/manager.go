package podnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

// Manager gives pods their networks.
type Manager struct {
	options Options
	conf    configuration
	notes   notes
	records *attach.Dir
	exec    libcni.Exec // without observers
	cni     *libcni.CNIConfig
}

// New returns a Manager that has read the configuration directories once; Watch
// keeps it up to date. That there is no network yet is no error: Status says so.
func New(o Options) (*Manager, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	m := &Manager{
		options: o, conf: configuration{dirs: o.ConfDirs, chosen: o.DefaultNetwork},
		notes: notes{o.StateDir}, records: attach.Open(o.RunDir), exec: o.Exec,
	}
	if m.exec == nil {
		m.exec = &invoke.RawExec{}
	}
	m.cni = libcni.NewCNIConfigWithCacheDir(o.PluginDirs, o.CacheDir, observed(m.exec, o.Observers))
	m.cni.Warn = o.Warn
	m.conf.load()
	return m, nil
}

// Reload reads the configuration directories now.
func (m *Manager) Reload() { m.conf.load() }

// ErrExists is in the error that a pod is set up already, in another way.
var ErrExists = errors.New("the pod is set up already")

// bounded ends with the context, or after the Manager's time.
func (m *Manager) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, m.options.Timeout, fmt.Errorf("the time of %v is over: %w", m.options.Timeout, context.DeadlineExceeded))
}

// lasting ends some time after the context: what takes away has to come to its end
// though the caller's patience is over.
func (m *Manager) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	over := fmt.Errorf("the time of %v for cleaning up is over: %w", m.options.CleanUpTime, context.DeadlineExceeded)
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

// known is what there is to detach of a pod: its note, and what libcni's cache has
// besides. Where both are silent, Fairlead's records are asked, and where they are
// silent, too, it is the default network's eth0: plugins find what they made by
// its owner alone.
func (m *Manager) known(ctx context.Context, id string) (*note, []*part, error) {
	n, err := m.notes.read(id)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.options.Warn("pod "+id+" is torn down without its note", err)
	}
	var parts []*part
	if n != nil {
		netns := sameNetns(n.Netns, n.NetnsID)
		for _, p := range n.Parts {
			parts = append(parts, m.recall(ctx, p, id, netns))
		}
	}
	cached, cacheErr := m.cni.GetCachedAttachments(id)
	for _, a := range cached {
		if has(parts, a.Network, a.IfName) {
			continue
		}
		p := noted{Network: a.Network, IfName: a.IfName, Config: a.Config, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
		parts = append(parts, m.recall(ctx, p, id, sameNetns(a.NetNS, attach.NetnsID(a.NetNS))))
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

// recorded are the attachments of Fairlead's plugins that nobody else knows.
func (m *Manager) recorded(ctx context.Context, id string, known []*part) (out []*part, err error) {
	records, err := m.records.List("")
	for _, r := range records {
		if r.ContainerID == id && !has(known, r.Network, r.IfName) {
			out = append(out, m.recall(ctx, noted{Network: r.Network, IfName: r.IfName}, id, sameNetns(r.Netns, r.NetnsID)))
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

// recall makes a part of what is known of it: its configuration is the one that it
// was made with, else the network's of now, else none.
func (m *Manager) recall(ctx context.Context, n noted, id, netns string) *part {
	q := &part{noted: n}
	q.rt = q.runtimeConf(id, netns)
	if list, err := (&libcni.NetworkAttachment{Network: n.Network, Config: n.Config}).List(); err == nil {
		q.list = list
	} else if n.Network == loopbackNetwork {
		q.list, _ = loopback() // a constant
	} else if list, err := m.network(ctx, n.Namespace, n.Network); err == nil {
		q.list = list
	}
	if q.list != nil {
		q.alone = insideLinks(q.list)
	}
	return q
}

// sameNetns is the path if it still names the namespace, else "": plugins take
// nothing from another that has its path by now.
func sameNetns(path, id string) string {
	if path == "" || id == "" || attach.NetnsID(path) != id {
		return ""
	}
	return path
}
