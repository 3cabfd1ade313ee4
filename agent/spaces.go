package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/kernel"
)

// space is the agent's hold on the namespace of an isolated network.
type space struct {
	ns     *kernel.Netns
	engine *kernel.Engine
	rec    *kernel.Reconciler
	stop   context.CancelFunc
}

// heard are changes that the kernel told, of a space or of the host ("").
type heard struct {
	network string
	events  []kernel.Event
}

// openSpace makes a network's namespace, if it is not there, and listens in it.
func (k *kernelKeeper) openSpace(network string) (*space, error) {
	path := local.NetnsPath(network)
	if err := kernel.MakeNetns(path); err != nil {
		return nil, err
	}
	ns, err := kernel.OpenNetns(path)
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		ns.Close()
		return nil, err
	}
	var m *kernel.Monitor
	if err := ns.Do(func() (err error) { m, err = kernel.NewMonitor(); return err }); err != nil {
		e.Close()
		ns.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { _ = m.Run(ctx, func(ev []kernel.Event) { k.tell(ctx, heard{network, ev}) }) }()
	return &space{ns, e, kernel.NewReconciler(e, kernel.Container, owner()), stop}, nil
}

func (s *space) close() {
	s.stop()
	s.engine.Close()
	s.ns.Close()
}

// tell hands changes to the loop.
func (k *kernelKeeper) tell(ctx context.Context, h heard) {
	select {
	case k.events <- h:
	case <-ctx.Done():
	}
}

// gone tells whether somebody took a namespace away: what is held open has no name any more.
func (k *kernelKeeper) gone(network string, s *space) bool {
	now, err := kernel.OpenNetns(local.NetnsPath(network))
	if err != nil {
		return true
	}
	defer now.Close()
	return !now.SameAs(s.ns)
}

// spacesAs makes the namespaces those that are wanted, and what is in them so.
func (k *kernelKeeper) spacesAs(want []Space, sure bool, rep *kernel.Report) {
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Network] = true
		if s := k.spaces[w.Network]; s != nil && k.gone(w.Network, s) {
			s.close()
			delete(k.spaces, w.Network)
		}
		if k.spaces[w.Network] == nil {
			s, err := k.openSpace(w.Network)
			if err != nil {
				rep.Errors = append(rep.Errors, fmt.Errorf("network %s: %w", w.Network, err))
				continue
			}
			k.spaces[w.Network] = s
		}
	}
	for _, w := range want {
		if s := k.spaces[w.Network]; s != nil {
			s.rec.Spare = !sure
			rep.Add(s.rec.Reconcile(w.Objects), "network "+w.Network)
		}
	}
	if sure {
		if err := k.dropSpaces(wanted); err != nil {
			rep.Errors = append(rep.Errors, err)
		}
	}
}

// dropSpaces ends the namespaces that no network needs, those of an earlier agent
// of this host among them. One in which a container still has its link stays.
func (k *kernelKeeper) dropSpaces(wanted map[string]bool) error {
	entries, err := os.ReadDir(local.NetnsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), local.NetnsPrefix)
		if !ours || wanted[name] {
			continue
		}
		inUse, err2 := occupied(local.NetnsPath(name))
		switch {
		case err2 != nil && !errors.Is(err2, os.ErrNotExist):
			err = errors.Join(err, err2)
		case inUse:
			err = errors.Join(err, fmt.Errorf("network %s is not wanted here any more, and containers are on it: detach them (fairlead list)", name))
		default:
			if s := k.spaces[name]; s != nil {
				s.close()
				delete(k.spaces, name)
			}
			err = errors.Join(err, kernel.RemoveNetns(local.NetnsPath(name)))
		}
	}
	return err
}

// occupied tells whether a container's link has its end in a namespace.
func occupied(path string) (yes bool, err error) {
	ns, err := kernel.OpenNetns(path)
	if err != nil {
		return false, err
	}
	defer ns.Close()
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		return false, err
	}
	defer e.Close()
	links, err := e.Links(kernel.Container)
	for _, l := range links {
		yes = yes || l.Group == kernel.Group && kernel.IsOwnerMark(l.Alias)
	}
	return yes, err
}
