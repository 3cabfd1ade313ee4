package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The prefixes of keys. Every one is followed by a name.
const (
	NetworksPrefix  = "networks/"  // networks/NAME: Network
	NodesPrefix     = "nodes/"     // nodes/NAME: Node
	AlivePrefix     = "alive/"     // alive/NAME: held while the node's agent lives; information only
	BlocksPrefix    = "blocks/"    // blocks/NETWORK/10.244.3.0-26: Block
	AddressesPrefix = "addresses/" // addresses/NETWORK/10.244.0.7: Address
	FixedPrefix     = "fixed/"     // fixed/NETWORK/NAMESPACE/NAME/IFNAME: written with each new fixed address of a pod
	EndpointsPrefix = "endpoints/" // endpoints/NODE/CONTAINER/IFNAME: Endpoint
	VNIsPrefix      = "vnis/"      // vnis/NUMBER: the name of the isolated network that has it
	PoliciesPrefix  = "policies/"  // policies/NAME: later
)

// Followed are the prefixes that every node's agent follows: what its objects and its
// addresses are worked out from. What changes with each container of the cluster,
// endpoints, is not among them: 5,000 agents would be told of each.
func Followed() []string {
	return []string{AddressesPrefix, BlocksPrefix, NetworksPrefix, NodesPrefix}
}

// IsFollowed tells whether a key is below one of them, or flannel's, which an agent
// follows that is told to.
func IsFollowed(key string) bool {
	return strings.HasPrefix(key, FlannelPrefix) || slices.ContainsFunc(Followed(), func(p string) bool { return strings.HasPrefix(key, p) })
}

// NetworkKey is a network's key.
func NetworkKey(name string) string { return NetworksPrefix + name }

// VNIKey is the key that keeps a VNI one network's.
func VNIKey(vni int) string { return fmt.Sprint(VNIsPrefix, vni) }

// NodeKey is a node's key.
func NodeKey(name string) string { return NodesPrefix + name }

// AliveKey is the key that a node's agent holds.
func AliveKey(name string) string { return AlivePrefix + name }

// BlockKey is a block's key: what two nodes want at once they contend for there.
func BlockKey(network string, block netip.Prefix) string {
	return fmt.Sprintf("%s%s/%s-%d", BlocksPrefix, network, block.Masked().Addr(), block.Bits())
}

// AddressKey is the key of an address that the cluster gives.
func AddressKey(network string, ip netip.Addr) string {
	return AddressesPrefix + network + "/" + ip.String()
}

// FixedKey is the key that those contend for who want to give a pod a fixed address.
func FixedKey(network, pod, ifName string) string {
	return FixedPrefix + network + "/" + pod + "/" + ifName
}

// EndpointKey is the key of one interface of a container.
func EndpointKey(node, container, ifName string) string {
	return EndpointsPrefix + node + "/" + container + "/" + ifName
}

// parseBlockKey reads what BlockKey wrote.
func parseBlockKey(key string) (network string, block netip.Prefix, err error) {
	rest, _ := strings.CutPrefix(key, BlocksPrefix)
	network, name, _ := strings.Cut(rest, "/")
	addr, bits, _ := strings.Cut(name, "-")
	block, err = netip.ParsePrefix(addr + "/" + bits)
	// One block has one key, as nodes contend for it by that.
	if err != nil || !validWord(network) || key != BlockKey(network, block) {
		return "", netip.Prefix{}, fmt.Errorf("key %q names no block: want blocks/NETWORK/ADDRESS-BITS", key)
	}
	return network, block, nil
}

// parseAddressKey reads what AddressKey wrote.
func parseAddressKey(key string) (network string, ip netip.Addr, err error) {
	rest, _ := strings.CutPrefix(key, AddressesPrefix)
	network, name, _ := strings.Cut(rest, "/")
	ip, err = netip.ParseAddr(name)
	if err != nil || !validWord(network) || ip.Zone() != "" || key != AddressKey(network, ip) {
		return "", netip.Addr{}, fmt.Errorf("key %q names no address: want addresses/NETWORK/ADDRESS", key)
	}
	return network, ip, nil
}
