package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// namespace holds an isolated network's open namespace and its reconciler.
type namespace struct {
	ns     *netns.Handle
	engine *kernel.Engine
	rec    *reconcile.Reconciler
	stop   context.CancelFunc
}

// networkError is an error in one isolated network's namespace. Other networks are not affected.
type networkError struct {
	Network string
	Err     error
}

func (e *networkError) Error() string { return "network " + e.Network + ": " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *networkError) Unwrap() error { return e.Err }

// failures returns the networks with errors, and whether there are errors of the host itself.
func failures(errs []error) (namespaces map[string]bool, host bool) {
	namespaces = map[string]bool{}
	for _, err := range errs {
		if e, is := errors.AsType[*networkError](err); is {
			namespaces[e.Network] = true
		} else {
			host = true
		}
	}
	return namespaces, host
}

// kernelEvents are kernel notifications from one network's namespace, or from the host's ("").
type kernelEvents struct {
	network string
	events  []reconcile.Event
}

// openNamespace opens a network's namespace, creating it if missing, and monitors it.
func (k *kernelReconciler) openNamespace(network string) (*namespace, error) {
	path := local.NetnsPath(network)
	if err := netns.Create(k.conf.MountNamespace, path); err != nil {
		return nil, err
	}
	ns, err := netns.Open(path)
	if err != nil && k.conf.MountNamespace != "" {
		return nil, fmt.Errorf("%w: the agent's container does not see mounts of the host. Set mountPropagation: HostToContainer for its volume %s", err, filepath.Dir(path))
	}
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
	go func() { _ = m.Run(ctx, func(ev []reconcile.Event) { k.send(ctx, kernelEvents{network, ev}) }) }()
	return &namespace{ns, e, reconcile.New(e, kernel.Container, owner()), stop}, nil
}

func (s *namespace) close() {
	s.stop()
	s.engine.Close()
	s.ns.Close()
}

// send passes events to the loop.
func (k *kernelReconciler) send(ctx context.Context, h kernelEvents) {
	select {
	case k.changes <- h:
	case <-ctx.Done():
	}
}

// isAtPath reports whether an open namespace is at its network's path. If somebody has deleted the path, for example with
// "ip -all netns delete", isAtPath mounts the namespace there again: it still has the containers' links.
func (k *kernelReconciler) isAtPath(network string, s *namespace) bool {
	path := local.NetnsPath(network)
	if now, err := netns.Open(path); err == nil {
		defer now.Close()
		return now.SameAs(s.ns)
	}
	return s.ns.Keep(k.conf.MountNamespace, path) == nil && s.ns.IsAt(path)
}

// reconcileNamespaces creates the wanted namespaces and applies their objects. It removes other namespaces only if
// synced.
func (k *kernelReconciler) reconcileNamespaces(want []desired.Namespace, synced bool, rep *reconcile.Report) {
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w.Network] = true
		if s := k.namespaces[w.Network]; s != nil && !k.isAtPath(w.Network, s) {
			s.close()
			delete(k.namespaces, w.Network)
		}
		if k.namespaces[w.Network] == nil {
			s, err := k.openNamespace(w.Network)
			if err != nil {
				rep.Errors = append(rep.Errors, &networkError{w.Network, err})
				continue
			}
			k.namespaces[w.Network] = s
		}
	}
	for _, w := range want {
		if s := k.namespaces[w.Network]; s != nil {
			s.rec.NoRemove = !synced
			did := s.rec.Reconcile(w.Objects)
			for i, err := range did.Errors {
				did.Errors[i] = &networkError{w.Network, err}
			}
			rep.Add(did, "")
		}
	}
	if synced {
		k.removeNamespaces(wanted, rep)
	}
}

// removeNamespaces removes the namespaces that no network needs, including those of an earlier agent. A namespace with
// a container's link stays.
func (k *kernelReconciler) removeNamespaces(wanted map[string]bool, rep *reconcile.Report) {
	entries, err := os.ReadDir(local.NetnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		rep.Errors = append(rep.Errors, fmt.Errorf("list namespaces of networks: %w", err))
	}
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), local.NetnsPrefix)
		if !ours || wanted[name] {
			continue
		}
		switch err := k.removeNamespace(name); err {
		case nil:
		case errAttaching:
			rep.Busy = true
		default:
			rep.Errors = append(rep.Errors, &networkError{name, err})
		}
	}
}

// errAttaching is the error of removing a namespace in which a plugin attaches a container.
var errAttaching = errors.New("a container is being attached to the network") // a constant

// removeNamespace removes a network's namespace, unless it has a container's link or is unmanaged: only its name has our
// prefix. A plugin holds the namespace's lock while it attaches a container.
func (k *kernelReconciler) removeNamespace(network string) error {
	path := local.NetnsPath(network)
	ns, err := netns.Open(path)
	switch {
	case err == nil:
		defer ns.Close()
		if free, err := ns.TryLock(); err != nil || !free {
			return cmp.Or(err, errAttaching)
		}
		defer ns.Unlock()
		inUse, foreign, err := occupied(ns)
		switch {
		case foreign:
			return nil
		case err != nil:
			return err
		case inUse:
			return errors.New("this host no longer needs the network, but containers are attached to it: detach them (see fairlead list)")
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if s := k.namespaces[network]; s != nil {
		s.close()
		delete(k.namespaces, network)
	}
	return netns.Remove(k.conf.MountNamespace, path)
}

// occupied reports whether a container's link ends in the namespace, and whether it has other active links that
// Fairlead did not create.
func occupied(ns *netns.Handle) (yes, foreign bool, err error) {
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
