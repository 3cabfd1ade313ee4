package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Prefixes of keys. A name follows each.
const (
	NetworksPrefix  = "networks/"  // networks/NAME: Network
	NodesPrefix     = "nodes/"     // nodes/NAME: Node
	AlivePrefix     = "alive/"     // alive/NAME: exists while the node's agent lives; informational
	BlocksPrefix    = "blocks/"    // blocks/NETWORK/10.244.3.0-26: Block
	AddressesPrefix = "addresses/" // addresses/NETWORK/10.244.0.7: Address
	FixedPrefix     = "fixed/"     // fixed/NETWORK/NAMESPACE/NAME/IFNAME: Fixed, written with each new fixed address of a pod
	EndpointsPrefix = "endpoints/" // endpoints/NODE/CONTAINER/IFNAME: Endpoint
	VNIsPrefix      = "vnis/"      // vnis/NUMBER: the name of the isolated network that uses it
	PoliciesPrefix  = "policies/"  // policies/KIND/NAMESPACE/NAME: see agent/policy/stored
)

// Followed returns the prefixes that every agent follows, from which it computes its objects and addresses. Endpoints
// are not among them: they change with each container, and thousands of agents would receive each change.
func Followed() []string {
	return []string{AddressesPrefix, BlocksPrefix, NetworksPrefix, NodesPrefix}
}

// IsFollowed reports whether a key is below a followed prefix, or below flannel's, which agents follow if configured.
func IsFollowed(key string) bool {
	return strings.HasPrefix(key, FlannelPrefix) || slices.ContainsFunc(Followed(), func(p string) bool { return strings.HasPrefix(key, p) })
}

// NetworkKey returns a network's key.
func NetworkKey(name string) string { return NetworksPrefix + name }

// VNIKey returns the key that reserves a VNI for one network.
func VNIKey(vni int) string { return fmt.Sprint(VNIsPrefix, vni) }

// NodeKey returns a node's key.
func NodeKey(name string) string { return NodesPrefix + name }

// AliveKey returns the key that a node's agent holds.
func AliveKey(name string) string { return AlivePrefix + name }

// BlockKey returns a block's key. Nodes that want the same block conflict on this key.
func BlockKey(network string, block netip.Prefix) string {
	return fmt.Sprintf("%s%s/%s-%d", BlocksPrefix, network, block.Masked().Addr(), block.Bits())
}

// AddressKey returns the key of an individually assigned address.
func AddressKey(network string, ip netip.Addr) string {
	return AddressesPrefix + network + "/" + ip.String()
}

// FixedKey returns the key on which concurrent assignments of a pod's fixed address conflict.
func FixedKey(network, pod, ifName string) string {
	return FixedPrefix + network + "/" + pod + "/" + ifName
}

// EndpointKey returns the key of a container's interface.
func EndpointKey(node, container, ifName string) string {
	return EndpointsPrefix + node + "/" + container + "/" + ifName
}

// ParseBlockKey parses a key from BlockKey.
func ParseBlockKey(key string) (network string, block netip.Prefix, err error) {
	rest, _ := strings.CutPrefix(key, BlocksPrefix)
	network, name, _ := strings.Cut(rest, "/")
	addr, bits, _ := strings.Cut(name, "-")
	block, err = netip.ParsePrefix(addr + "/" + bits)
	// Reject other spellings: nodes must conflict on the same key.
	if err != nil || !validWord(network) || key != BlockKey(network, block) {
		return "", netip.Prefix{}, fmt.Errorf("key %q names no block: want blocks/NETWORK/ADDRESS-BITS", key)
	}
	return network, block, nil
}

// ParseAddressKey parses a key from AddressKey.
func ParseAddressKey(key string) (network string, ip netip.Addr, err error) {
	rest, _ := strings.CutPrefix(key, AddressesPrefix)
	network, name, _ := strings.Cut(rest, "/")
	ip, err = netip.ParseAddr(name)
	if err != nil || !validWord(network) || ip.Zone() != "" || key != AddressKey(network, ip) {
		return "", netip.Addr{}, fmt.Errorf("key %q names no address: want addresses/NETWORK/ADDRESS", key)
	}
	return network, ip, nil
}
