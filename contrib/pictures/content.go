package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/clustermap"
)

// architecture shows the layers that an ADD goes through.
func architecture() diagram {
	return diagram{
		title: "The layers of Fairlead, from a container runtime to the kernel",
		boxes: []box{
			{"runtime", 0, 0, 3, 1, userColor, []string{"containerd, CRI-O, Podman, nerdctl, Nomad"}},
			{"command", 3, 0, 2, 1, userColor, []string{"fairlead add | check | del"}},
			{"skel", 0, 2, 3, 1, codeColor, []string{"skel: CNI 0.1.0 to 1.1.0"}},
			{"libcni", 3, 2, 2, 1, codeColor, []string{"libcni, podnet"}},
			{"plugins", 0, 4, 3, 2, codeColor, []string{"plugins: pure functions", "bridge, ptp, macvlan, portmap, firewall, ...", "configuration → list of objects"}},
			{"ipam", 3, 4, 2, 2, codeColor, []string{"ipam", "host-local, dhcp, static, ...", "ranges → addresses"}},
			{"plugin", 0, 7, 5, 1, codeColor, []string{"plugin: one list for ADD, undo, CHECK, DEL, GC, STATUS, plan"}},
			{"engine", 0, 9, 5, 1, codeColor, []string{"kernel: the engine applies, compares and removes objects"}},
			{"host", 0, 11, 2, 2, kernelColor, []string{"host", "bridge, veth, routes,", "nftables tables"}},
			{"container", 2, 11, 2, 2, kernelColor, []string{"container", "eth0, addresses,", "routes, sysctls"}},
			{"record", 4, 11, 1, 2, kernelColor, []string{"record", "/run/fairlead"}},
		},
		arrows: []arrow{
			{from: "runtime", to: "skel", label: "environment, JSON"},
			{from: "command", to: "libcni"},
			{from: "libcni", to: "skel", label: ""},
			{from: "skel", to: "plugins"},
			{from: "plugins", to: "ipam"},
			{from: "plugins", to: "plugin", label: "objects"},
			{from: "plugin", to: "engine"},
			{from: "engine", to: "host", label: "netlink, nft"},
			{from: "engine", to: "container", label: "netlink"},
			{from: "engine", to: "record"},
		},
	}
}

// backend is one way in which a packet gets to another host.
type backend struct {
	name, device, wire, needs string
}

func backends() []backend {
	return []backend{
		{"host-gw", "", "the packet itself", "both hosts on one link"},
		{"vxlan", "fl-vx.1", "UDP 8472, 50 bytes more", "any UDP route"},
		{"wireguard", "fl-wg", "UDP 51820, encrypted, 60 bytes more", "any UDP route"},
		{"ipip", "fl-ipip", "IP protocol 4, 20 bytes more", "routers that pass protocol 4"},
		{"bgp", "", "the packet itself", "routers that speak BGP"},
	}
}

// packetPath shows a packet's path from a container on one host to a container on another.
func packetPath(b backend) diagram {
	d := diagram{title: "The path of a packet between two hosts with the backend " + b.name}
	d.boxes = append(d.boxes,
		box{"c1", 0, 0, 2, 1, userColor, []string{"container 10.244.1.5"}},
		box{"v1", 0, 2, 2, 1, kernelColor, []string{"veth pair, bridge or ptp"}},
		box{"r1", 0, 4, 2, 1, kernelColor, []string{"route 10.244.2.0/26"}},
		box{"c2", 4, 0, 2, 1, userColor, []string{"container 10.244.2.9"}},
		box{"v2", 4, 2, 2, 1, kernelColor, []string{"veth pair, bridge or ptp"}},
		box{"r2", 4, 4, 2, 1, kernelColor, []string{"route 10.244.2.9"}},
	)
	row := 6
	d.arrows = append(d.arrows, arrow{from: "c1", to: "v1"}, arrow{from: "v1", to: "r1", label: "forwarding"})
	last, first := "r1", "r2"
	if b.device != "" {
		d.boxes = append(d.boxes,
			box{"t1", 0, row, 2, 1, kernelColor, []string{b.device + " encapsulates"}},
			box{"t2", 4, row, 2, 1, kernelColor, []string{b.device + " decapsulates"}})
		d.arrows = append(d.arrows, arrow{from: "r1", to: "t1"}, arrow{from: "t2", to: "r2"})
		last, first = "t1", "t2"
		row += 2
	}
	d.boxes = append(d.boxes,
		box{"u1", 0, row, 2, 1, kernelColor, []string{"uplink 192.0.2.11"}},
		box{"u2", 4, row, 2, 1, kernelColor, []string{"uplink 192.0.2.12"}},
		box{"wire", 2, row, 2, 1, wireColor, []string{b.wire, b.needs}})
	d.arrows = append(d.arrows, arrow{from: last, to: "u1"}, arrow{from: "u1", to: "wire"}, arrow{from: "wire", to: "u2"},
		arrow{from: "u2", to: first}, arrow{from: "r2", to: "v2", label: "forwarding"}, arrow{from: "v2", to: "c2"})
	return d
}

// clusterMap draws a cluster of four nodes as "fairlead map" does.
func clusterMap() ([]byte, error) {
	s := cluster.NewSnapshot()
	put := func(key string, value any) error {
		data, err := json.Marshal(value)
		if err == nil {
			s.Set(key, data)
		}
		return err
	}
	type object = map[string]any
	if err := put("networks/default", object{
		"subnets":  []object{{"cidr": "10.244.0.0/16"}},
		"backends": []object{{"type": "host-gw", "when": "direct"}, {"type": "wireguard"}},
	}); err != nil {
		return nil, err
	}
	if err := put("networks/blue", object{"subnets": []object{{"cidr": "10.0.0.0/24"}}, "isolated": true, "vni": 4097}); err != nil {
		return nil, err
	}
	names := []string{"berlin-1", "berlin-2", "paris-1", "paris-2"}
	for i, name := range names {
		if err := addNode(put, i, name); err != nil {
			return nil, err
		}
	}
	if len(s.Nodes) != len(names) {
		return nil, fmt.Errorf("the snapshot has %d of %d nodes", len(s.Nodes), len(names))
	}
	var out bytes.Buffer
	err := clustermap.Of(s).SVG(&out)
	return out.Bytes(), err
}

// addNode puts a node with one block and a few containers into the snapshot. Two nodes share a link.
func addNode(put func(string, any) error, i int, name string) error {
	type object = map[string]any
	keys := []struct {
		key   string
		value object
	}{
		{"nodes/" + name, object{"id": fmt.Sprintf("id-%d", i), "addresses": []string{fmt.Sprintf("192.0.%d.%d/24", 2+i/2, 11+i)}, "wireGuard": wireguardKey(i)}},
		{"alive/" + name, object{}},
		{fmt.Sprintf("blocks/default/10.244.%d.0-26", i), object{"node": name, "subnet": "10.244.0.0/16"}},
		{"endpoints/" + name + "/web/eth0", object{"network": "default", "ips": []string{fmt.Sprintf("10.244.%d.2", i)}}},
		{"endpoints/" + name + "/db/eth0", object{"network": "default", "ips": []string{fmt.Sprintf("10.244.%d.3", i)}}},
	}
	for _, k := range keys {
		if err := put(k.key, k.value); err != nil {
			return err
		}
	}
	if i%2 == 0 {
		return put("endpoints/"+name+"/batch/eth0", object{"network": "blue", "ips": []string{fmt.Sprintf("10.0.0.%d", 7+i)}})
	}
	return nil
}

// wireguardKey returns a public key for the drawing: 32 bytes in base64. Nobody has its private key.
func wireguardKey(i int) string {
	key := make([]byte, 32)
	key[0] = byte(i + 1)
	return base64.StdEncoding.EncodeToString(key)
}
