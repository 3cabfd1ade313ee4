package address

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
)

// low is the part of a block below which another is claimed in advance.
const low = 4 // a quarter

// look writes this node's files, claims back what is held here, and claims in advance.
func (m *Manager) look(ctx context.Context) error {
	if m.isReady() != nil {
		return nil
	}
	m.blocks.Lock()
	defer m.blocks.Unlock()
	unsettled := m.leases(ctx) // what this node had of flannel may be its own in a moment
	errs := []error{unsettled, m.keepHeld(ctx), m.keepAddresses(ctx), m.writeFiles(), m.letGo(ctx)}
	if unsettled != nil {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, m.ahead(ctx))...)
}

// ahead claims blocks before the ones that are here are full. That there are none left
// is an error when nothing else can take their place.
func (m *Manager) ahead(ctx context.Context) error {
	var errs []error
	wants, free, none := m.wants(), map[choice]int{}, map[choice]error{}
	for _, w := range wants {
		if len(w.subnet.Lent) > 0 && len(w.subnet.Blocks) == 0 {
			continue // nobody has asked for another yet
		}
		if leaves, err := m.leaves(w.network); leaves || err != nil {
			errs = append(errs, err)
			continue
		}
		n := m.free(w)
		free[w.choice()] += n
		if n*low >= w.size {
			continue
		}
		err := m.need(ctx, w.network, w.subnet.CIDR)
		switch {
		case errors.Is(err, errNoBlock):
			none[w.choice()] = err
		case err == nil:
			free[w.choice()] += w.size
		}
		if !errors.Is(err, errNoBlock) {
			errs = append(errs, err)
		}
	}
	for c, err := range none {
		if free[c] == 0 {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// choice is what subnets of which any will do have in common.
type choice struct {
	network, pool string
	six           bool
}

func (w want) choice() choice { return choice{w.network, w.subnet.Name, w.subnet.CIDR.Addr().Is6()} }

// want is a subnet of which this node has, or should have, blocks.
type want struct {
	network string
	subnet  local.Subnet
	size    int // addresses of a block
}

// wants are the subnets that this node takes part in: of the default network and of
// those that something here asked for; of one with a name once it has a block.
func (m *Manager) wants() (list []want) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.view.snap.Networks {
		if !m.takesPart(name) {
			continue
		}
		for _, s := range n.Subnets {
			ls := m.localSubnet(name, s)
			if ls.Cluster() || s.Name != "" && len(ls.Blocks) == 0 || !usable(s, s.CIDR) {
				continue // of which nobody asked, or that is excluded whole: it is to go
			}
			whole := local.Subnet{CIDR: s.CIDR} // the first block may be excluded
			set, err := whole.Ranges(nthBlock(s.CIDR, s.BlockBits(), 0))
			if err == nil {
				list = append(list, want{name, ls, set.Size(1 << 16)})
			}
		}
	}
	return list
}

func (m *Manager) takesPart(network string) bool {
	return network == cluster.DefaultNetwork || m.joined[network] || len(m.view.snap.BlocksOf(network, m.Node)) > 0
}

// free is how many addresses of this node's blocks nobody holds.
func (m *Manager) free(w want) int {
	held, err := m.Dir.Holds(w.network)
	if err != nil {
		return w.size
	}
	taken := map[netip.Addr]bool{}
	for _, a := range held {
		taken[a] = true
	}
	free := 0
	for _, b := range w.subnet.Blocks {
		set, err := w.subnet.Ranges(b)
		if err != nil {
			continue
		}
		free += set.Size(1 << 16)
		for a := range taken {
			if r, ok := set.Find(a); ok && a != r.Gateway {
				free--
			}
		}
	}
	return free
}
