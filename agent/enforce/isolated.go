package enforce

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/netns"
)

// isolated is the part of an Enforcer for isolated networks. Each has a network namespace and a table of its own on a node,
// and an Enforcer, which gets all changes from that of the host.
type isolated struct {
	networks map[string]*Enforcer    // of the host's Enforcer: by network
	start    func(*Enforcer)         // of the host's Enforcer: runs one of these; nil: nothing runs yet, or any more
	cluster  map[string]Network      // of the host's Enforcer: the cluster's networks; nil: not known yet
	podAddrs map[string][]netip.Addr // see SetPodAddresses

	done     context.Context         // ends when the network has gone
	end      context.CancelFunc      // ends it
	network  string                  // "": the host
	ns       *netns.Handle           // that the rules are in; nil: none
	leave    context.CancelCauseFunc // ends the work in that namespace
	appeared chan struct{}           // there may be a namespace again
}

// namespaceEvery is the interval between looks whether a network has its namespace still. Meanwhile, the Enforcer keeps the
// former one from ending.
const namespaceEvery = 200 * time.Millisecond

var errNamespaceGone = errors.New("the network's namespace has gone")

// startNetworks sets how to run the Enforcers of isolated networks, and runs those that exist.
func (e *Enforcer) startNetworks(start func(*Enforcer)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.start = start
	for _, n := range e.networks {
		if start != nil {
			start(n)
		}
	}
}

// ofNetwork returns the Enforcer of an isolated network, or the host's for "". Without policies, the host's is for all.
func (e *Enforcer) ofNetwork(network string) *Enforcer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if network == "" || !e.active {
		return e
	}
	return e.addNetwork(network)
}

// addNetwork returns the Enforcer of an isolated network, and creates it if necessary. The caller holds the lock.
func (e *Enforcer) addNetwork(network string) *Enforcer {
	n := e.networks[network]
	if n != nil {
		return n
	}
	o := e.o
	o.Log = o.Log.With("network", network)
	n = newEnforcer(o, nil)
	n.network, n.active, n.missing, n.unwritten = network, true, maps.Clone(e.missing), true
	n.compiler, n.metrics = e.compiler.ForNetwork(network, e.cluster[network].Peers), e.metrics.forNetwork()
	n.compiler.SetPodNetworks(e.podNetworks(network))
	n.done, n.end = context.WithCancel(context.Background())
	e.networks[network] = n
	if e.start != nil {
		e.start(n)
	}
	return n
}

// updateNetworks changes the worlds of isolated networks like the host's. The caller holds the lock of the host's Enforcer.
func (e *Enforcer) updateNetworks(change func(*policy.Compiler)) {
	if e.network != "" {
		return
	}
	e.addLocalNetworks()
	for _, n := range e.networks {
		n.update(change)
	}
}

// addLocalNetworks adds the cluster's networks in which pods of this node have addresses. A pod's annotation may name any
// others. The caller holds the lock of the host's Enforcer.
func (e *Enforcer) addLocalNetworks() {
	for network := range e.compiler.LocalNetworks() {
		if _, exists := e.cluster[network]; exists {
			e.addNetwork(network)
		}
	}
}

// removeNetworks removes the Enforcers of networks that the cluster does not have any more and in which nobody is attached.
// The caller holds reading, so that nobody is about to be attached.
func (e *Enforcer) removeNetworks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for network, n := range e.networks {
		if _, exists := e.cluster[network]; exists || e.cluster == nil || len(n.claims()) > 0 {
			continue
		}
		delete(e.networks, network)
		n.end()
		e.metrics.merge(n.metrics)
	}
}

// Network is a network of the cluster.
type Network struct {
	Subnets []netip.Prefix
	Pods    []netip.Prefix // the parts of Subnets that are not excluded: pods have their addresses from these
	Peers   []string       // of an isolated network: those that it reaches, whose pods are peers in its rules
}

// NetworksOf returns the cluster's networks: the default network by the name "", and isolated ones.
func NetworksOf(s *cluster.Snapshot) map[string]Network {
	out := map[string]Network{}
	for name, n := range s.Networks {
		var x Network
		for _, subnet := range n.Subnets {
			var excluded [][2]netip.Addr
			for _, text := range subnet.Exclude {
				if first, last, err := cluster.ParseRange(text); err == nil { // the store has valid networks only
					excluded = append(excluded, [2]netip.Addr{first, last})
				}
			}
			x.Subnets = append(x.Subnets, subnet.CIDR)
			x.Pods = append(x.Pods, policy.Without(subnet.CIDR, excluded)...)
		}
		switch {
		case n.Isolated:
			x.Peers = s.PeersOf(name)
			out[name] = x
		case name == cluster.DefaultNetwork:
			out[""] = x
		}
	}
	return out
}

// PodsOf returns the parts of a network and its peers from which the pods in the network's rules have their addresses.
func PodsOf(all map[string]Network, network string) []netip.Prefix {
	out := slices.Clone(all[network].Pods)
	for _, p := range all[network].Peers {
		out = append(out, all[p].Pods...)
	}
	return out
}

// podNetworks returns where the addresses of unknown pods are. With files, no container of another host ever becomes known,
// so rules about containers do not apply to them.
func (e *Enforcer) podNetworks(network string) []netip.Prefix {
	if e.o.Directory != "" {
		return nil
	}
	return PodsOf(e.cluster, network)
}

// PodAddressesOf returns the addresses that nodes have in the default network, by node. The first address of a block is its
// node's on a tunnel, and the second one is the gateway of its pods.
func PodAddressesOf(blocks map[string]*cluster.Block) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, b := range blocks {
		if hostBits := b.CIDR.Addr().BitLen() - b.CIDR.Bits(); b.Network != cluster.DefaultNetwork || hostBits < 2 {
			continue
		}
		first := b.CIDR.Masked().Addr()
		out[b.Node] = append(out[b.Node], first, first.Next())
	}
	for _, list := range out {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	return out
}

// SetPodAddresses sets the nodes' addresses in the default network, see PodAddressesOf.
func (e *Enforcer) SetPodAddresses(all map[string][]netip.Addr) {
	e.mu.Lock()
	before := e.podAddrs
	e.podAddrs = all
	e.mu.Unlock()
	if maps.EqualFunc(before, all, slices.Equal) {
		return
	}
	e.update(func(c *policy.Compiler) {
		for node := range before {
			if all[node] == nil {
				c.SetPodAddresses(node, nil)
			}
		}
		for node, list := range all {
			c.SetPodAddresses(node, list)
		}
	})
}

// SetNetworks sets the cluster's networks, see NetworksOf.
func (e *Enforcer) SetNetworks(all map[string]Network) {
	e.mu.Lock()
	same := reflect.DeepEqual(all, e.cluster)
	e.cluster = all
	e.mu.Unlock()
	if same {
		return
	}
	e.update(func(c *policy.Compiler) { c.SetPodNetworks(e.podNetworks(c.Network())) })
	e.reading.Lock()
	defer e.reading.Unlock()
	e.removeNetworks()
	e.mu.Lock()
	defer e.mu.Unlock()
	for network, n := range e.networks {
		n.update(func(c *policy.Compiler) { c.SetPeers(all[network].Peers, e.compiler) })
	}
}

// allNetworks returns the Enforcers of isolated networks, sorted by name.
func (e *Enforcer) allNetworks() (out []*Enforcer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, network := range slices.Sorted(maps.Keys(e.networks)) {
		out = append(out, e.networks[network])
	}
	return out
}

// claims returns the IDs of the attachments that have claims, in all networks.
func (e *Enforcer) claims() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := e.compiler.Claims()
	for _, n := range e.networks {
		ids = append(ids, n.claims()...)
	}
	return ids
}

// hasNamespace reports whether there is a namespace for the rules. The caller holds the lock.
func (e *Enforcer) hasNamespace() bool { return e.network == "" || e.ns != nil }

// problemOfNetworks says why policy is not in force in an isolated network. The caller holds the lock.
func (e *Enforcer) problemOfNetworks() string {
	for _, network := range slices.Sorted(maps.Keys(e.networks)) {
		if p := e.networks[network].Problem(); p != "" {
			return "network " + network + ": " + p
		}
	}
	return ""
}

// runIsolated keeps policy in force in an isolated network until the context ends or the network has gone, whenever the
// network has a namespace on this node.
func (e *Enforcer) runIsolated(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.done, cancel)()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		err := e.runInNamespace(ctx)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNamespaceGone) || ctx.Err() != nil {
			err = nil
		}
		e.failed(err)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-e.appeared:
		}
	}
}

// failed notes why the Enforcer does not work in its namespace.
func (e *Enforcer) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && (e.failure == nil || e.failure.Error() != err.Error()) {
		e.o.Log.Error("network policy is not in force", "error", err)
	}
	e.failure = err
}

// runInNamespace works in the namespace that the network has now, until it has another.
func (e *Enforcer) runInNamespace(ctx context.Context) error {
	ns, err := netns.Open(local.NetnsPath(e.network))
	if err != nil {
		return err
	}
	defer ns.Close()
	var s *sockets
	err = ns.Do(func() (err error) {
		if s, err = openSockets(); err == nil {
			err = e.metrics.begin()
		}
		return err
	})
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	defer e.metrics.end()
	ctx, leave := context.WithCancelCause(ctx)
	e.enter(ns, leave)
	defer e.enter(nil, nil)
	var all sync.WaitGroup
	defer all.Wait()
	defer leave(nil)
	all.Go(func() { e.watchNamespace(ctx) })
	return e.program(ctx, s)
}

// enter notes the namespace whose rules the Enforcer writes from now on.
func (e *Enforcer) enter(ns *netns.Handle, leave context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ns, e.leave, e.inForce, e.failure = ns, leave, false, nil
	e.disturbed.Store(true)
	wake(e.kick)
}

func (e *Enforcer) watchNamespace(ctx context.Context) {
	for sleep(ctx, namespaceEvery) {
		e.checkNamespace()
	}
}

// checkNamespace ends the work in a namespace that the network does not have any more. Policy is not in force then, until
// the rules are in the next one.
func (e *Enforcer) checkNamespace() {
	if e.network == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ns == nil {
		wake(e.appeared)
		return
	}
	now, err := netns.Open(local.NetnsPath(e.network))
	if err == nil {
		defer now.Close()
	}
	if err == nil && now.SameAs(e.ns) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	e.ns, e.inForce = nil, false
	e.leave(errNamespaceGone)
	wake(e.appeared)
}
