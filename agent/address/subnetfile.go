package address

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/internal/plainfile"
)

// If flannel's subnet file is written, host-local assigns the addresses of one block per family, and fairlead-ipam
// assigns none of them. The block stays the same as long as this node owns it, because the bridge has the block's
// gateway address.

// subnetFileKeys returns the variables of flannel's subnet file.
func subnetFileKeys(six bool) (network, subnet string) {
	if six {
		return "FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET"
	}
	return "FLANNEL_NETWORK", "FLANNEL_SUBNET"
}

// readSubnetFile returns the blocks in the file that flanneld or an agent wrote.
func readSubnetFile(file string) (blocks []netip.Prefix) {
	raw, err := plainfile.Read(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		for _, six := range []bool{false, true} {
			if _, subnet := subnetFileKeys(six); word != subnet {
				continue
			}
			if p, err := netip.ParsePrefix(strings.Trim(value, `"'`)); err == nil && p.Addr().Is6() == six {
				blocks = append(blocks, p.Masked())
			}
		}
	}
	return blocks
}

// chooseFlannelBlocks selects the blocks for the flannel plugin: the previous ones if this node still owns them, or
// else its first ones.
func (m *Manager) chooseFlannelBlocks(n *cluster.Network) {
	if m.SubnetFile == "" {
		return
	}
	for _, six := range []bool{false, true} {
		list := m.flannelCandidates(n, six)
		if len(list) == 0 || slices.Contains(list, m.flannelBlock[six]) {
			continue
		}
		m.flannelBlock[six] = list[0]
		for _, p := range m.formerBlocks {
			if slices.Contains(list, p) {
				m.flannelBlock[six] = p
			}
		}
	}
}

// flannelCandidates returns this node's blocks of one family in unnamed subnets, in order.
func (m *Manager) flannelCandidates(n *cluster.Network, six bool) (out []netip.Prefix) {
	for _, b := range m.ownBlocks(n.Name) {
		claimed := m.state.snap.Blocks[cluster.BlockKey(n.Name, b)]
		if b.Addr().Is6() != six || claimed.Release {
			continue
		}
		for _, s := range n.Subnets {
			if s.UsedByDefault() && s.CIDR.Contains(b.Addr()) && n.CanBlock(claimed) == nil {
				out = append(out, b)
			}
		}
	}
	return out
}

func (m *Manager) isFlannelBlock(network string, block netip.Prefix) bool {
	return network == cluster.DefaultNetwork && m.SubnetFile != "" && m.flannelBlock[block.Addr().Is6()] == block
}

// usesHostLocal reports whether host-local may assign addresses of a network on this node, for the flannel plugin.
func (m *Manager) usesHostLocal(network string) bool {
	return network == cluster.DefaultNetwork && m.SubnetFile != ""
}

// allocatedAddrs returns the addresses of a network that containers here hold, including those from host-local.
func (m *Manager) allocatedAddrs(network string) ([]netip.Addr, error) {
	held, err := m.Dir.Holds(network)
	if err != nil || !m.usesHostLocal(network) {
		return held, err
	}
	more, err := m.Dir.HeldByHostLocal()
	return append(held, more...), err
}

// writeSubnetFile writes flannel's subnet file as flanneld would. FLANNEL_IPMASQ is true, which tells the plugin not to
// masquerade: the network's nat setting decides.
func (m *Manager) writeSubnetFile() error {
	m.mu.Lock()
	n := m.state.snap.Networks[cluster.DefaultNetwork]
	var b bytes.Buffer
	for _, six := range []bool{false, true} {
		block := m.flannelBlock[six]
		if n == nil || !block.IsValid() {
			continue
		}
		network, subnet := subnetFileKeys(six)
		fmt.Fprintf(&b, "%s=%s\n%s=%s\n", network, cidrs(n, six), subnet, netip.PrefixFrom(block.Addr().Next(), block.Bits()))
	}
	m.mu.Unlock()
	mtu := m.MTU(cluster.DefaultNetwork)
	if b.Len() == 0 || mtu == 0 || m.SubnetFile == "" {
		return nil
	}
	fmt.Fprintf(&b, "FLANNEL_MTU=%d\nFLANNEL_IPMASQ=true\n", mtu)
	old, err := plainfile.Read(m.SubnetFile)
	if err == nil && bytes.Equal(old, b.Bytes()) {
		return nil
	}
	if err = os.MkdirAll(filepath.Dir(m.SubnetFile), 0o755); err == nil {
		err = local.Replace(m.SubnetFile, b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write flannel's subnet file: %w", err)
	}
	m.Log.Info("wrote flannel's subnet file", "file", m.SubnetFile)
	return nil
}

// cidrs returns a network's subnets of one family, comma-separated as flannel writes them.
func cidrs(n *cluster.Network, six bool) string {
	var list []string
	for _, s := range n.Subnets {
		if s.CIDR.Addr().Is6() == six {
			list = append(list, s.CIDR.String())
		}
	}
	return strings.Join(list, ",")
}

// formerBlock returns the block of a subnet that this node had under flannel, if it is free.
func (m *Manager) formerBlock(network string, s cluster.Subnet) (p netip.Prefix, ok bool) {
	for _, p := range m.formerBlocks {
		if m.usesHostLocal(network) && s.CIDR.Contains(p.Addr()) && p.Bits() == s.BlockBits() && m.isFree(network, s, p) {
			return p, true
		}
	}
	return p, false
}

// isFree reports whether a block can be claimed.
func (m *Manager) isFree(network string, s cluster.Subnet, b netip.Prefix) bool {
	if m.Flannel != nil && network == cluster.DefaultNetwork && m.state.snap.LeasedBy(b) != nil {
		return false
	}
	return m.state.revision(cluster.BlockKey(network, b)) == 0 && local.Usable(s, b) && !m.hasHost(network, b) && !m.overlaps(network, s, b)
}

// overlaps reports whether a block that a node claimed overlaps. It has another length: the subnet, or the length of its
// blocks, was changed. A block that is not smaller than the subnet hinders nobody: no agent claimed it. Or it belongs to
// another network in the hosts' namespace: see cluster.Snapshot.Overlap.
func (m *Manager) overlaps(network string, s cluster.Subnet, b netip.Prefix) bool {
	onHosts := func(name string) bool {
		n := m.state.snap.Networks[name]
		return n != nil && !n.Isolated
	}
	for _, x := range m.state.snap.Blocks {
		switch {
		case !x.CIDR.Overlaps(b):
		case x.Network == network && x.CIDR.Bits() > s.CIDR.Bits(), x.Network != network && onHosts(x.Network) && onHosts(network):
			return true
		}
	}
	return false
}

// hasHost reports whether a node's own address lies in a block. Such a block is not routed.
func (m *Manager) hasHost(network string, b netip.Prefix) bool {
	if n := m.state.snap.Networks[network]; n != nil && n.Isolated {
		return false
	}
	for _, n := range m.state.snap.Nodes {
		for _, a := range n.Addresses {
			if b.Contains(a.Addr()) {
				return true
			}
		}
	}
	return false
}
