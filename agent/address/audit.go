package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/ipam"
)

// LocalState is the state of addresses on this node's disk.
type LocalState struct {
	Networks map[string]*local.Network
	Held     map[string][]ipam.Allocation // by network
	Pending  []local.Release              // releases that the agent has not processed yet

	HostLocal []netip.Addr // addresses that the host-local plugin assigned, of all networks

	// Attached contains "CONTAINER IFNAME" for each attachment on this host; nil means unknown.
	Attached map[string]bool
}

// ReadLocalState reads the state from disk.
func ReadLocalState(d local.Dir) (*LocalState, error) {
	h := &LocalState{Networks: map[string]*local.Network{}, Held: map[string][]ipam.Allocation{}}
	names, err := d.Networks()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		n, err := d.Read(name)
		if err == nil {
			h.Networks[name] = n
		}
		errs = append(errs, err)
	}
	names, err = ipam.Networks(d.Addresses())
	errs = append(errs, err)
	for _, name := range names {
		held, err := ipam.Allocations(d.Addresses(), name)
		h.Held[name] = held
		errs = append(errs, err)
	}
	h.HostLocal, err = d.HeldByHostLocal()
	errs = append(errs, err)
	h.Pending, err = d.PendingReleases()
	return h, errors.Join(append(errs, err)...)
}

// Finding is an inconsistency.
type Finding struct {
	Subject string `json:"subject"` // "block 10.244.0.0/26 of network default"
	Problem string `json:"problem"`
	Next    string `json:"next"` // what the user can do
}

// Audit compares the store with a node's disk, and checks the store's own consistency.
func Audit(s *cluster.Snapshot, node string, h *LocalState) []Finding {
	a := &audit{s: s, node: node, h: h}
	a.documents()
	a.blocks()
	a.files()
	a.held()
	a.hostLocal()
	a.addresses()
	slices.SortFunc(a.out, func(x, y Finding) int { return compare(x.Subject+x.Problem, y.Subject+y.Problem) })
	return a.out
}

type audit struct {
	s    *cluster.Snapshot
	node string
	h    *LocalState
	out  []Finding
}

func (a *audit) find(subject, problem, next string) {
	a.out = append(a.out, Finding{subject, problem, next})
}

func ofNetwork(kind string, what fmt.Stringer, network string) string {
	return fmt.Sprintf("%s %s of network %s", kind, what, network)
}

func (a *audit) documents() {
	for key, err := range a.s.Problems {
		a.find("key "+key, err.Error(), "write it again: the agent ignores it")
	}
}

const waits = "it becomes free after the grace period, or now: fairlead ipam release --node "

// removed reports whether a node is gone. An agent that has just started is alive before it has published its node.
func (a *audit) removed(node string) bool { return a.s.Nodes[node] == nil && !a.s.Alive[node] }

func (a *audit) blocks() {
	var all []*cluster.Block
	for _, b := range a.s.Blocks {
		all = append(all, b)
		subject := ofNetwork("block", b.CIDR, b.Network)
		n := a.s.Networks[b.Network]
		switch {
		case n == nil:
			a.find(subject, "there is no such network", "release it")
		case !slices.ContainsFunc(n.Subnets, func(x cluster.Subnet) bool { return x.CIDR.Overlaps(b.CIDR) && x.Assign != cluster.AssignCluster }):
			a.find(subject, "it is in no subnet of its network that is assigned in blocks", "release it")
		}
		if a.removed(b.Node) {
			a.find(subject, fmt.Sprintf("it belongs to node %s, which was removed", b.Node), waits+b.Node)
		}
	}
	slices.SortFunc(all, func(x, y *cluster.Block) int { return x.CIDR.Compare(y.CIDR) })
	for i, b := range all {
		for _, c := range all[:i] {
			if b.Network == c.Network && b.CIDR.Overlaps(c.CIDR) {
				a.find(ofNetwork("block", b.CIDR, b.Network), fmt.Sprintf("it overlaps with %s of node %s", c.CIDR, c.Node), "release one of them")
			}
		}
	}
}

// files compares this node's files with the store.
func (a *audit) files() {
	for name, n := range a.h.Networks {
		in := map[netip.Prefix]bool{}
		for _, s := range n.Subnets {
			for _, b := range slices.Concat(s.Blocks, s.Leased) {
				in[b] = true
				subject := ofNetwork("block", b, name)
				switch now := a.s.Blocks[cluster.BlockKey(name, b)]; {
				case now == nil:
					a.find(subject, "this node's file has it, but it is free in the store", "is the agent running? It claims it again if containers hold addresses of it")
				case now.Node != a.node:
					a.find(subject, fmt.Sprintf("this node's file has it, but the store assigns it to node %s", now.Node), "attach the containers here that hold its addresses again")
				}
			}
		}
		for _, b := range a.s.BlocksOf(name, a.node) {
			if !in[b] && !a.s.Blocks[cluster.BlockKey(name, b)].Release {
				a.find(ofNetwork("block", b, name), "the store assigns it to this node, but this node's file lacks it", "is the agent running? It writes the file")
			}
		}
	}
}

// held checks every address that a container here holds.
func (a *audit) held() {
	for name, list := range a.h.Held {
		for _, h := range list {
			subject := ofNetwork("address", h.Addr, name)
			if !a.inBlock(name, h.Addr) {
				a.foreign(subject, name, h)
			}
			if a.h.Attached != nil && !a.h.Attached[h.Owner.ContainerID+" "+h.Owner.IfName] {
				a.find(subject, fmt.Sprintf("container %s holds it but has no attachment", h.Owner), "a GC of its CNI network frees it: fairlead gc NETWORK")
			}
		}
	}
}

// hostLocal reports addresses that host-local assigned here from another node's block: the other node may assign them, too.
func (a *audit) hostLocal() {
	for _, ip := range a.h.HostLocal {
		for _, b := range a.s.Blocks {
			if b.Network == cluster.DefaultNetwork && b.Node != a.node && b.CIDR.Contains(ip) {
				a.find(ofNetwork("address", ip, b.Network), fmt.Sprintf("host-local assigned it here, but it is in block %s of node %s", b.CIDR, b.Node),
					"give host-local a subnet outside the network's, or use fairlead-ipam")
			}
		}
	}
}

func (a *audit) inBlock(network string, ip netip.Addr) bool {
	return slices.ContainsFunc(a.s.BlocksOf(network, a.node), func(b netip.Prefix) bool { return b.Contains(ip) })
}

// foreign reports a held address that is in none of this node's blocks.
func (a *audit) foreign(subject, network string, h ipam.Allocation) {
	now := a.s.Addresses[cluster.AddressKey(network, h.Addr)]
	switch {
	case now == nil:
		a.find(subject, fmt.Sprintf("container %s holds it, but it is free in the store and in no block of this node", h.Owner), "attach the container again")
	case now.Node != a.node || now.Container != h.Owner.ContainerID:
		a.find(subject, fmt.Sprintf("container %s holds it, but the store assigns it to %s on node %q", h.Owner, now.Owner, now.Node), "attach the container again")
	}
}

// addresses checks the addresses that the store assigns to this node or to removed nodes.
func (a *audit) addresses() {
	for _, x := range a.s.Addresses {
		subject := ofNetwork("address", x.IP, x.Network)
		switch {
		case x.Node == "":
		case x.Node != a.node:
			if a.removed(x.Node) {
				a.find(subject, fmt.Sprintf("it is on node %s, which was removed", x.Node), waits+x.Node)
			}
		case !slices.ContainsFunc(a.h.Held[x.Network], func(h ipam.Allocation) bool { return h.Addr == x.IP }):
			a.find(subject, fmt.Sprintf("the store assigns it to container %s on this node, which does not hold it", x.Container), "the agent releases it after three minutes")
		}
	}
}
