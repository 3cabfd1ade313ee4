package address

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
)

// lowWater divides a block's size: if fewer addresses are free, another block is claimed in advance.
const lowWater = 4 // a quarter

// reconcile writes this node's files, reclaims held blocks and addresses, and prefetches blocks.
func (m *Manager) reconcile(ctx context.Context) error {
	if m.isReady() != nil {
		return nil
	}
	m.blocks.Lock()
	defer m.blocks.Unlock()
	unsettled := m.syncFlannelLeases(ctx) // first, because this node may take over a flannel lease
	errs := []error{unsettled, m.reclaimLocalBlocks(ctx), m.reclaimLocalAddresses(ctx), m.writeFiles(), m.releaseBlocks(ctx)}
	if unsettled != nil {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, m.prefetch(ctx))...)
}

// prefetch claims blocks before the current ones are full. Running out of blocks is an error only if no equivalent
// subnet has free addresses.
func (m *Manager) prefetch(ctx context.Context) error {
	var errs []error
	wants, free, none := m.wants(), map[choice]int{}, map[choice]error{}
	for _, w := range wants {
		if len(w.subnet.Leased) > 0 && len(w.subnet.Blocks) == 0 {
			continue // no container has asked for another block yet
		}
		if leaves, err := m.leavesNetwork(w.network); leaves || err != nil {
			errs = append(errs, err)
			continue
		}
		n := m.free(w)
		free[w.choice()] += n
		if n*lowWater >= w.size {
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

// choice identifies interchangeable subnets.
type choice struct {
	network, pool string
	six           bool
}

func (w want) choice() choice { return choice{w.network, w.subnet.Name, w.subnet.CIDR.Addr().Is6()} }

// want is a subnet of which this node should have blocks.
type want struct {
	network string
	subnet  local.Subnet
	size    int // addresses per block
}

// wants returns the subnets that this node uses: those of the default network and of networks that a container here
// asked for. A named subnet counts once it has a block.
func (m *Manager) wants() (list []want) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.state.snap.Networks {
		if !m.takesPart(name) {
			continue
		}
		for _, s := range n.Subnets {
			ls := m.localSubnet(n, s)
			if ls.Cluster() || s.Name != "" && len(ls.Blocks) == 0 || !local.Usable(s, s.CIDR) {
				continue // nobody asked for it, or it is excluded completely
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
	return network == cluster.DefaultNetwork || m.joined[network] || len(m.ownBlocks(network)) > 0
}

// free returns the number of free addresses in this node's blocks.
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
