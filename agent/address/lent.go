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
)

// A block is lent to the plugin flannel when its file is written: host-local gives
// the block's addresses then, and fairlead-ipam none of them. One block of each
// family is lent, and the same for as long as it is this node's, as a bridge has its
// gateway's address.

// The lines of flannel's file of this host's subnet, for IPv4 and IPv6.
func envWords(six bool) (network, subnet string) {
	if six {
		return "FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET"
	}
	return "FLANNEL_NETWORK", "FLANNEL_SUBNET"
}

// readLent reads which blocks the file names, as flanneld or an agent wrote it before.
func readLent(file string) (blocks []netip.Prefix) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		for _, six := range []bool{false, true} {
			if _, subnet := envWords(six); word != subnet {
				continue
			}
			if p, err := netip.ParsePrefix(strings.Trim(value, `"'`)); err == nil && p.Addr().Is6() == six {
				blocks = append(blocks, p.Masked())
			}
		}
	}
	return blocks
}

// lend chooses the blocks that are lent: those that were, if they are still this
// node's, else its first.
func (m *Manager) lend(n *cluster.Network) {
	if m.SubnetFile == "" {
		return
	}
	for _, six := range []bool{false, true} {
		list := m.lendable(n, six)
		if len(list) == 0 || slices.Contains(list, m.lent[six]) {
			continue
		}
		m.lent[six] = list[0]
		for _, p := range m.before {
			if slices.Contains(list, p) {
				m.lent[six] = p
			}
		}
	}
}

// lendable are this node's blocks of a family, in order: of subnets without a name.
func (m *Manager) lendable(n *cluster.Network, six bool) (out []netip.Prefix) {
	for _, b := range m.view.snap.BlocksOf(n.Name, m.Node) {
		if b.Addr().Is6() != six || m.view.snap.Blocks[cluster.BlockKey(n.Name, b)].Release {
			continue
		}
		for _, s := range n.Subnets {
			if s.InEveryChoice() && s.CIDR.Contains(b.Addr()) {
				out = append(out, b)
			}
		}
	}
	return out
}

func (m *Manager) isLent(network string, block netip.Prefix) bool {
	return network == cluster.DefaultNetwork && m.SubnetFile != "" && m.lent[block.Addr().Is6()] == block
}

// mayGive tells whether the plugin flannel gives addresses of a network here.
func (m *Manager) mayGive(network string) bool {
	return network == cluster.DefaultNetwork && m.SubnetFile != ""
}

// holds are the addresses of a network that containers here have, host-local's too.
func (m *Manager) holds(network string) ([]netip.Addr, error) {
	held, err := m.Dir.Holds(network)
	if err != nil || !m.mayGive(network) {
		return held, err
	}
	more, err := m.Dir.HeldByHostLocal()
	return append(held, more...), err
}

// writeSubnetFile writes flannel's file of this host's subnet, as flanneld would. It
// has no agent masquerade twice: whether packets that leave have the host's address is
// the network's to say, so the plugin is told that it is not its own business.
func (m *Manager) writeSubnetFile() error {
	m.mu.Lock()
	n := m.view.snap.Networks[cluster.DefaultNetwork]
	var b bytes.Buffer
	for _, six := range []bool{false, true} {
		block := m.lent[six]
		if n == nil || !block.IsValid() {
			continue
		}
		network, subnet := envWords(six)
		fmt.Fprintf(&b, "%s=%s\n%s=%s\n", network, cidrs(n, six), subnet, netip.PrefixFrom(block.Addr().Next(), block.Bits()))
	}
	m.mu.Unlock()
	mtu := m.MTU(cluster.DefaultNetwork)
	if b.Len() == 0 || mtu == 0 || m.SubnetFile == "" {
		return nil
	}
	fmt.Fprintf(&b, "FLANNEL_MTU=%d\nFLANNEL_IPMASQ=true\n", mtu)
	old, err := os.ReadFile(m.SubnetFile)
	if err == nil && bytes.Equal(old, b.Bytes()) {
		return nil
	}
	if err = os.MkdirAll(filepath.Dir(m.SubnetFile), 0o755); err == nil {
		err = local.Replace(m.SubnetFile, b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write flannel's file of this host's subnet: %w", err)
	}
	m.Log.Info("wrote flannel's file of this host's subnet", "file", m.SubnetFile)
	return nil
}

// cidrs are a network's subnets of a family, as flannel parts them.
func cidrs(n *cluster.Network, six bool) string {
	var list []string
	for _, s := range n.Subnets {
		if s.CIDR.Addr().Is6() == six {
			list = append(list, s.CIDR.String())
		}
	}
	return strings.Join(list, ",")
}

// wished is the block of a subnet that this node had as a node of flannel's, if it is free.
func (m *Manager) wished(network string, s cluster.Subnet) (p netip.Prefix, ok bool) {
	for _, p := range m.before {
		if m.mayGive(network) && s.CIDR.Contains(p.Addr()) && p.Bits() == s.BlockBits() && m.isFree(network, s, p) {
			return p, true
		}
	}
	return p, false
}

// isFree tells whether a block of a subnet can be claimed.
func (m *Manager) isFree(network string, s cluster.Subnet, b netip.Prefix) bool {
	if m.Flannel != nil && network == cluster.DefaultNetwork && m.view.snap.LeasedBy(b) != nil {
		return false
	}
	return m.view.was(cluster.BlockKey(network, b)) == 0 && usable(s, b) && !m.hasHost(network, b)
}

// hasHost tells whether a node's own address is in a block: it would not be routed.
func (m *Manager) hasHost(network string, b netip.Prefix) bool {
	if n := m.view.snap.Networks[network]; n != nil && n.Isolated {
		return false
	}
	for _, n := range m.view.snap.Nodes {
		for _, a := range n.Addresses {
			if b.Contains(a.Addr()) {
				return true
			}
		}
	}
	return false
}
