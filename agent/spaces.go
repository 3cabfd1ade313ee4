package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// space is the agent's hold on the namespace of an isolated network.
type space struct {
	ns     *netns.Handle
	engine *kernel.Engine
	rec    *reconcile.Reconciler
	stop   context.CancelFunc
}

// spaceError is what went wrong with one network's namespace: it is no other's.
type spaceError struct {
	Network string
	Err     error
}

func (e *spaceError) Error() string { return "network " + e.Network + ": " + e.Err.Error() }

// Unwrap is what was wrong.
func (e *spaceError) Unwrap() error { return e.Err }

// failures parts errors: by network, and whether there are others, of the host.
func failures(errs []error) (spaces map[string]bool, host bool) {
	spaces = map[string]bool{}
	for _, err := range errs {
		if e, is := errors.AsType[*spaceError](err); is {
			spaces[e.Network] = true
		} else {
			host = true
		}
	}
	return spaces, host
}

// heard are changes that the kernel told, of a space or of the host ("").
type heard struct {
	network string
	events  []reconcile.Event
}

// openSpace makes a network's namespace, if it is not there, and listens in it.
func (k *kernelKeeper) openSpace(network string) (*space, error) {
	path := local.NetnsPath(network)
	if err := netns.Create(path); err != nil {
		return nil, err
	}
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		ns.Close()
		return nil, err
	}
	var m *reconcile.Monitor
	if err := ns.Do(func() (err error) { m, err = reconcile.NewMonitor(); return err }); err != nil {
		e.Close()
		ns.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { _ = m.Run(ctx, func(ev []reconcile.Event) { k.tell(ctx, heard{network, ev}) }) }()
	return &space{ns, e, reconcile.New(e, kernel.Container, owner()), stop}, nil
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
	now, err := netns.Open(local.NetnsPath(network))
	if err != nil {
		return true
	}
	defer now.Close()
	return !now.SameAs(s.ns)
}

// spacesAs makes the namespaces those that are wanted, and what is in them so.
func (k *kernelKeeper) spacesAs(want []Space, sure bool, rep *reconcile.Report) {
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
				rep.Errors = append(rep.Errors, &spaceError{w.Network, err})
				continue
			}
			k.spaces[w.Network] = s
		}
	}
	for _, w := range want {
		if s := k.spaces[w.Network]; s != nil {
			s.rec.NoRemove = !sure
			did := s.rec.Reconcile(w.Objects)
			for i, err := range did.Errors {
				did.Errors[i] = &spaceError{w.Network, err}
			}
			rep.Add(did, "")
		}
	}
	if sure {
		rep.Errors = append(rep.Errors, k.dropSpaces(wanted)...)
	}
}

// dropSpaces ends the namespaces that no network needs, those of an earlier agent
// of this host among them. One in which a container still has its link stays.
func (k *kernelKeeper) dropSpaces(wanted map[string]bool) (errs []error) {
	entries, err := os.ReadDir(local.NetnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return []error{fmt.Errorf("look for namespaces of networks: %w", err)}
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), local.NetnsPrefix)
		if !ours || wanted[name] {
			continue
		}
		inUse, foreign, err := occupied(local.NetnsPath(name))
		switch {
		case foreign:
			// somebody else's, of a name like ours
		case err != nil && !errors.Is(err, os.ErrNotExist):
			errs = append(errs, &spaceError{name, err})
		case inUse:
			errs = append(errs, &spaceError{name, errors.New("it is not wanted here any more, and containers are on it: detach them (fairlead list)")})
		default:
			if s := k.spaces[name]; s != nil {
				s.close()
				delete(k.spaces, name)
			}
			if err := netns.Remove(local.NetnsPath(name)); err != nil {
				errs = append(errs, &spaceError{name, err})
			}
		}
	}
	return errs
}

// occupied tells whether a container's link has its end in a namespace, and whether
// there are links at work that nobody of ours has made.
func occupied(path string) (yes, foreign bool, err error) {
	ns, err := netns.Open(path)
	if err != nil {
		return false, false, err
	}
	defer ns.Close()
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		return false, false, err
	}
	defer e.Close()
	links, err := e.Links(kernel.Container)
	for _, l := range links {
		switch {
		case l.Group == kernel.LinkGroup && kernel.IsOwnerTag(l.Alias):
			yes = true
		case l.Up && l.Name != "lo" && !strings.HasPrefix(l.Alias, owner().Alias):
			foreign = true
		}
	}
	return yes, foreign && !yes, err
}
