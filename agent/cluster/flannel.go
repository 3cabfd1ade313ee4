package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// FlannelPrefix is the prefix under which flannel's etcd keys are mounted.
const FlannelPrefix = "flannel/"

// FlannelConfigKey is the key of flannel's network configuration.
const FlannelConfigKey = FlannelPrefix + "config"

const flannelSubnets = FlannelPrefix + "subnets/"

// FlannelLease is a node's lease in flannel's keys, or in flannel's annotations of a Kubernetes Node.
type FlannelLease struct {
	Subnets []netip.Prefix `json:"-"` // from the key: IPv4, then IPv6 if there is one

	PublicIP   netip.Addr `json:"publicIP,omitzero"`
	PublicIPv6 netip.Addr `json:"publicIPv6,omitzero"`
	Type       string     `json:"type"` // "vxlan", "host-gw", "wireguard", "ipip"
	VNI        int        `json:"vni,omitempty"`
	MAC        string     `json:"mac,omitempty"`  // of the node's VXLAN link for IPv4
	MAC6       string     `json:"mac6,omitempty"` // for IPv6
	PublicKey  string     `json:"publicKey,omitempty"`

	// FairleadNode is the name of the Fairlead node whose agent wrote the lease for flannel's nodes; "" if flanneld
	// wrote it.
	FairleadNode string `json:"-"`
}

// FlannelConfig is flannel's network configuration (net-conf.json), as it is in the store.
type FlannelConfig struct{ Text []byte }

// Key returns the configuration's key.
func (*FlannelConfig) Key() string { return FlannelConfigKey }

// Key returns the lease's key.
func (l *FlannelLease) Key() string {
	var words []string
	for _, p := range l.Subnets {
		words = append(words, fmt.Sprintf("%s-%d", p.Masked().Addr(), p.Bits()))
	}
	return flannelSubnets + strings.Join(words, "&")
}

// NodeName returns a name for the flannel node that wrote the lease.
func (l *FlannelLease) NodeName() string { return "flannel " + l.PublicIP.String() }

// Node returns the flannel node that wrote the lease, as a peer.
func (l *FlannelLease) Node() *Node {
	n := &Node{Name: l.NodeName(), Flannel: &FlannelNode{Type: l.Type, MAC: l.MAC, V6: l.MAC6, Key: l.PublicKey}}
	for _, a := range []netip.Addr{l.PublicIP, l.PublicIPv6} {
		if a.IsValid() {
			n.Addresses = append(n.Addresses, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return n
}

// leaseDocument is a lease's value in flannel's format. Flannel ignores unknown keys.
type leaseDocument struct {
	PublicIP      *netip.Addr
	PublicIPv6    *netip.Addr
	BackendType   string         `json:",omitempty"`
	BackendData   *leaseOfTunnel `json:",omitempty"`
	BackendV6Data *leaseOfTunnel `json:",omitempty"`
	Fairlead      string         `json:",omitempty"`
}

type leaseOfTunnel struct {
	VNI       int    `json:",omitempty"`
	VtepMAC   string `json:",omitempty"`
	PublicKey string `json:",omitempty"`
}

// Value returns the lease's value.
func (l *FlannelLease) Value() ([]byte, error) {
	d := leaseDocument{BackendType: l.Type, Fairlead: l.FairleadNode}
	if l.PublicIP.IsValid() {
		d.PublicIP = &l.PublicIP
	}
	if l.PublicIPv6.IsValid() {
		d.PublicIPv6 = &l.PublicIPv6
	}
	if l.MAC != "" || l.PublicKey != "" || l.VNI != 0 && l.MAC6 == "" {
		d.BackendData = &leaseOfTunnel{l.VNI, l.MAC, l.PublicKey}
	}
	if key := l.publicKey6(); l.MAC6 != "" || key != "" {
		d.BackendV6Data = &leaseOfTunnel{l.VNI, l.MAC6, key}
	}
	return json.Marshal(d)
}

// publicKey6 returns the key in the data for IPv6. With both families, flannel's WireGuard backend uses this one.
func (l *FlannelLease) publicKey6() string {
	if l.Type != WireGuard || !l.PublicIPv6.IsValid() {
		return ""
	}
	return l.PublicKey
}

// ParseFlannelLease parses a lease's key and value.
func ParseFlannelLease(key string, value []byte) (*FlannelLease, error) {
	l := &FlannelLease{}
	rest, ok := strings.CutPrefix(key, flannelSubnets)
	for word := range strings.SplitSeq(rest, "&") {
		addr, bits, _ := strings.Cut(word, "-")
		p, err := netip.ParsePrefix(addr + "/" + bits)
		if err != nil || !ok || p != p.Masked() {
			return nil, fmt.Errorf(`key %q is not a flannel subnet: want one like "subnets/10.244.3.0-24"`, key)
		}
		l.Subnets = append(l.Subnets, p)
	}
	var d leaseDocument
	if err := json.Unmarshal(value, &d); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	l.set(&d)
	if !l.PublicIP.IsValid() && !l.PublicIPv6.IsValid() {
		return nil, fmt.Errorf("%s has no PublicIP", key)
	}
	if err := l.checkAddresses(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	for _, subnet := range l.Subnets {
		if p, what := special(subnet); what != "" {
			return nil, fmt.Errorf("key %q: containers cannot have addresses of %s (%s)", key, p, what)
		}
	}
	return l, nil
}

// set takes the values of a document.
func (l *FlannelLease) set(d *leaseDocument) {
	l.Type, l.FairleadNode = d.BackendType, d.Fairlead
	if d.PublicIP != nil {
		l.PublicIP = *d.PublicIP
	}
	if d.PublicIPv6 != nil {
		l.PublicIPv6 = *d.PublicIPv6
	}
	if b := d.BackendData; b != nil {
		l.VNI, l.MAC, l.PublicKey = b.VNI, b.VtepMAC, b.PublicKey
	}
	if b := d.BackendV6Data; b != nil {
		l.VNI, l.MAC6, l.PublicKey = cmp.Or(l.VNI, b.VNI), b.VtepMAC, cmp.Or(l.PublicKey, b.PublicKey)
	}
}

// checkAddresses returns an error if other nodes cannot send packets to one of the addresses.
func (l *FlannelLease) checkAddresses() error {
	for _, a := range []netip.Addr{l.PublicIP, l.PublicIPv6} {
		if err := CheckNodeAddress(a); a.IsValid() && err != nil {
			return err
		}
	}
	return nil
}

// Leases returns the keys of flannel's leases, sorted.
func (s *Snapshot) Leases() []string { return slices.Sorted(maps.Keys(s.Flannel)) }

// IsOf reports whether a lease belongs to a node: its agent wrote it, or the node's former flanneld did.
func (l *FlannelLease) IsOf(n *Node) bool {
	if l.FairleadNode != "" {
		return l.FairleadNode == n.Name
	}
	a, b := n.Address(false), n.Address(true)
	return a.IsValid() && a == l.PublicIP || !l.PublicIP.IsValid() && b == l.PublicIPv6
}

// LeaseOf returns a node's first lease, or nil.
func (s *Snapshot) LeaseOf(n *Node) *FlannelLease {
	for _, key := range s.Leases() {
		if l := s.Flannel[key]; l.IsOf(n) {
			return l
		}
	}
	return nil
}

// LeasedBy returns a lease that overlaps a block, or nil.
func (s *Snapshot) LeasedBy(block netip.Prefix) *FlannelLease {
	for _, l := range s.Flannel {
		for _, p := range l.Subnets {
			if p.Overlaps(block) {
				return l
			}
		}
	}
	return nil
}
