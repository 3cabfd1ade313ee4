package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"

	"github.com/fairlead/fairlead/agent/cluster"
)

// netConf is flannel's network configuration. Its own keys are capitalized.
type netConf struct {
	EnableIPv4     *bool
	EnableIPv6     bool
	EnableNFTables bool
	Network        netip.Prefix
	IPv6Network    netip.Prefix
	SubnetLen      int
	IPv6SubnetLen  int
	SubnetMin      netip.Addr
	SubnetMax      netip.Addr
	IPv6SubnetMin  netip.Addr
	IPv6SubnetMax  netip.Addr
	Backend        struct {
		Type                        string
		VNI                         int
		Port                        int
		DirectRouting               bool
		MTU                         int
		PSK                         string
		ListenPort                  int
		PersistentKeepaliveInterval int
	}
}

func readNetConf(path string) (*cluster.Network, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("networkFile: %w", err)
	}
	n, err := ParseNetConf(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// ParseNetConf parses a network configuration in flannel's format: the file net-conf.json, or flannel's key "config" in
// etcd.
func ParseNetConf(raw []byte) (*cluster.Network, error) {
	var c netConf
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("is not a configuration of flannel: %w", err)
	}
	n := &cluster.Network{Name: cluster.DefaultNetwork, NAT: true, MTU: c.containersMTU()}
	if c.EnableIPv4 == nil || *c.EnableIPv4 {
		s, err := flannelSubnet(c.Network, c.SubnetLen, flannelLength4, c.SubnetMin, c.SubnetMax)
		if err != nil {
			return nil, fmt.Errorf("Network: %w", err)
		}
		n.Subnets = append(n.Subnets, s)
	}
	if c.EnableIPv6 {
		s, err := flannelSubnet(c.IPv6Network, c.IPv6SubnetLen, flannelLength6, c.IPv6SubnetMin, c.IPv6SubnetMax)
		if err != nil {
			return nil, fmt.Errorf("IPv6Network: %w", err)
		}
		n.Subnets = append(n.Subnets, s)
	}
	b := cluster.Backend{Type: c.Backend.Type, VNI: c.Backend.VNI, Port: c.Backend.Port, Direct: c.Backend.DirectRouting}
	switch b.Type {
	case "": // flannel's default backend is udp, which Fairlead does not support
		b.Type = cluster.VXLAN
	case cluster.VXLAN, cluster.HostGW, cluster.IPIP:
	case cluster.WireGuard:
		b.Port, b.Keepalive = c.Backend.ListenPort, c.Backend.PersistentKeepaliveInterval
	default:
		return nil, fmt.Errorf("Backend.Type is %q: want vxlan, host-gw, wireguard or ipip", c.Backend.Type)
	}
	if b.Type == cluster.IPIP && b.Direct { // host-gw for nodes that share a link
		b.Direct = false
		n.Backends = append(n.Backends, cluster.Backend{Type: cluster.HostGW, When: "direct"})
	}
	n.Backends = append(n.Backends, b)
	return n, n.Validate()
}

// containersMTU returns the containers' MTU in bytes for flannel's MTU, which is that of packets between hosts. 0 means
// not set.
func (c *netConf) containersMTU() int {
	overhead := map[string]int{"": 50, cluster.VXLAN: 50, cluster.WireGuard: 80}
	if c.Backend.MTU == 0 {
		return 0
	}
	return c.Backend.MTU - overhead[c.Backend.Type]
}

// Default prefix lengths of a node's subnet. A network too small for them is divided into four.
const (
	flannelLength4 = 24
	flannelLength6 = 64
)

func flannelSubnet(all netip.Prefix, length, usual int, first, last netip.Addr) (s cluster.Subnet, err error) {
	if !all.IsValid() {
		return s, fmt.Errorf(`is missing: want one like "10.244.0.0/16"`)
	}
	if length == 0 {
		length = usual
		if all.Bits() >= usual {
			length = min(all.Bits()+2, all.Addr().BitLen()-2)
		}
	}
	if length < all.Bits() || length > all.Addr().BitLen()-2 {
		return s, fmt.Errorf("is %s, and a node's subnet has the length %d: want %d to %d", all, length, all.Bits(), all.Addr().BitLen()-2)
	}
	s = cluster.Subnet{CIDR: all.Masked(), Block: length}
	// SubnetMin and SubnetMax are the first and last assigned subnet. By default flannel skips the first subnet of the
	// network.
	if !first.IsValid() {
		first = cluster.LastOf(netip.PrefixFrom(s.CIDR.Addr(), length)).Next()
	}
	if !s.CIDR.Contains(first) {
		return s, fmt.Errorf("is %s, but its first subnet would be %s: correct SubnetMin, or use a larger network", all, first)
	}
	if first != s.CIDR.Addr() {
		s.Exclude = append(s.Exclude, s.CIDR.Addr().String()+"-"+first.Prev().String())
	}
	if last.IsValid() {
		if !s.CIDR.Contains(last) {
			return s, fmt.Errorf("is %s, but its last subnet would be %s: correct SubnetMax", all, last)
		}
		if end := cluster.LastOf(netip.PrefixFrom(last, length)); end != cluster.LastOf(s.CIDR) {
			s.Exclude = append(s.Exclude, end.Next().String()+"-"+cluster.LastOf(s.CIDR).String())
		}
	}
	return s, nil
}
