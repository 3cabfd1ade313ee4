package backend

import (
	"cmp"
	"net/netip"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// WireGuardName is the name of the WireGuard link.
const WireGuardName = "fl-wg"

const wireguardPort = 51820

// wireguardOverhead returns the size of a message's header and tag (32), UDP (8) and IP (WireGuard paper, section
// 5.4.6).
func wireguardOverhead(_ cluster.Backend, underlay6 bool) int {
	const message, udp, ipv4, ipv6 = 32, 8, 20, 40
	if underlay6 {
		return message + udp + ipv6
	}
	return message + udp + ipv4
}

// wireguard returns one link with each node as a peer, whose allowed IPs are its blocks.
func wireguard(in *Input) (out kernel.Objects, problems []Problem) {
	port := cmp.Or(in.Conf.Port, wireguardPort)
	link := &kernel.WireGuard{Name: WireGuardName, KeyFile: in.KeyFile, Port: port, MTU: in.MTU, OwnerTag: in.linkAlias("wireguard"), Program: in.Program, Socket: in.Socket}
	var routes kernel.Objects
	peers := newWireguardPeers(in.Self)
	for _, p := range in.Peers {
		err := peers.add(p.Node.Name, kernel.WireGuardPeer{
			PublicKey: publicKey(p.Node), Previous: p.Node.Previous, AllowedIPs: p.Dst, Keepalive: in.Conf.Keepalive,
			Endpoint: netip.AddrPortFrom(p.Node.Address(in.six()), uint16(port)),
		})
		if err != nil {
			problems = append(problems, Problem{p.Node.Name, err})
			continue
		}
		for _, d := range p.Dst {
			routes = append(routes, &kernel.Route{Dst: d, Link: WireGuardName, Proto: Protocol})
		}
	}
	link.Peers = peers.list
	out = append(out, link)
	out = append(out, in.own(WireGuardName)...)
	return append(out, routes...), problems
}

func publicKey(n *cluster.Node) string {
	if n.Flannel != nil {
		return n.Flannel.Key
	}
	return n.WireGuard
}
