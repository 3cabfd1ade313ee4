package compat

// existingObjects returns cases in which other software created an object before ADD: a bridge, an address, a route, a rule, a
// sysctl, a VRF, a table or a chain, in several states.
func existingObjects() []keyCase {
	gateway := `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, ` + hostLocal4 + `}`
	masq := `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, ` + hostLocal4 + `}`
	onHost := func(lines ...string) func(*host) { return func(h *host) { h.ip("host", lines...) } }
	inA := func(lines ...string) func(*recorder) { return func(r *recorder) { r.ip("a", lines...) } }
	run := func(script string) func(*host) {
		return func(h *host) {
			if out, err := h.command(nil, "", "sh", "-ec", script); err != nil {
				h.T.Fatalf("%s: %v: %s", script, err, out)
			}
		}
	}
	bridge := "link add cni0 address 02:00:00:00:00:05 type bridge"
	list := []keyCase{
		{key: "bridge", with: "down", plugins: gateway, prepare: onHost(bridge)},
		{key: "bridge", with: "up", plugins: gateway, prepare: onHost(bridge, "link set cni0 up")},
		{key: "bridge", with: "promiscuous", plugins: gateway, prepare: onHost(bridge, "link set cni0 up promisc on")},
		{key: "bridge", with: "with an MTU", plugins: gateway, prepare: onHost(bridge, "link set cni0 up mtu 1400")},
		{key: "bridge", with: "with another MTU than mtu", plugins: bridgeWith(`"mtu": 1300, `), prepare: onHost(bridge, "link set cni0 up mtu 1400")},
		{key: "bridge", with: "with a port", plugins: gateway, prepare: onHost(bridge, "link set cni0 up", "link add port0 type veth peer name port1", "link set port0 master cni0 up")},
		{key: "bridge", with: "with the gateway's address", plugins: gateway, prepare: onHost(bridge, "link set cni0 up", "addr add 10.1.0.1/24 dev cni0")},
		{key: "bridge", with: "with another address of the subnet", plugins: gateway, prepare: onHost(bridge, "link set cni0 up", "addr add 10.1.0.99/24 dev cni0")},
		{key: "bridge", with: "with another address, and forceAddress", plugins: `{"type": "bridge", "bridge": "cni0", "isGateway": true, "forceAddress": true, ` + hostLocal4 + `}`, prepare: onHost(bridge, "link set cni0 up", "addr add 10.1.0.99/24 dev cni0")},
		{key: "bridge", with: "with an address of another subnet", plugins: gateway, prepare: onHost(bridge, "link set cni0 up", "addr add 10.7.0.1/24 dev cni0")},
		{key: "bridge", with: "is a veth", plugins: gateway, prepare: onHost("link add cni0 type veth peer name other0")},
		{key: "bridge", with: "filters VLANs", plugins: gateway, prepare: onHost(bridge + " vlan_filtering 1"), needs: vlanFiltering},
		{key: "bridge", with: "filters VLANs, with vlan", plugins: bridgeWith(`"vlan": 100, `), prepare: onHost(bridge+" vlan_filtering 1 vlan_default_pvid 5", "link set cni0 up"), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "address", with: "the gateway's, on another link", plugins: gateway, prepare: onHost("link add other0 type veth peer name other1", "link set other0 up", "addr add 10.1.0.1/24 dev other0")},
		{key: "address", with: "of the subnet, in the container", plugins: gateway, before: inA("link add other0 type veth peer name other1", "link set other0 up", "addr add 10.1.0.77/24 dev other0")},
		{key: "route", with: "a default route in the container", plugins: gateway, before: inA("link add other0 type veth peer name other1", "link set other0 up", "addr add 192.0.2.7/24 dev other0", "route add default via 192.0.2.1")},
		{key: "route", with: "to the subnet on the host", plugins: gateway, prepare: onHost("link add other0 type veth peer name other1", "link set other0 up", "route add 10.1.0.0/24 dev other0 metric 50")},
		{key: "route", with: "to the address on the host, with ptp", plugins: `{"type": "ptp", ` + hostLocal4 + `}`, prepare: onHost("link add other0 type veth peer name other1", "link set other0 up", "route add 10.1.0.0/24 dev other0")},
		{key: "route", with: "a blackhole in the container", plugins: gateway, before: inA("route add blackhole 10.9.0.0/16")},
		{key: "interface", with: "of the same name in the container", plugins: gateway, before: inA("link add eth0 type veth peer name other1")},
		{key: "rule", with: "of the container's address, before sbr", plugins: afterBridge(`{"type": "sbr"}`), before: inA("rule add from 10.1.0.2 table 777")},
		{key: "rule", with: "with table 100, before sbr", plugins: afterBridge(`{"type": "sbr"}`), before: inA("rule add from 10.99.0.2 table 100")},
		{key: "route", with: "in table 100, before sbr", plugins: afterBridge(`{"type": "sbr"}`), before: inA("link add other0 type veth peer name other1", "link set other0 up", "route add 10.99.0.0/24 dev other0 table 100")},
		{key: "sysctl", with: "ip_forward is on", plugins: gateway, prepare: run("sysctl -qw net.ipv4.ip_forward=1")},
		{key: "sysctl", with: "somaxconn is set", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "dataDir": "$DIR/tuning"}`), before: func(r *recorder) {
			inContainer("before", "sysctl -qw net.core.somaxconn=77")(r)
		}, meanwhile: inContainer("somaxconn", "sysctl -n net.core.somaxconn")},
		{key: "table", with: "nat of nftables with a chain", plugins: masq, prepare: run("nft 'table ip nat { chain POSTROUTING { type nat hook postrouting priority srcnat; policy accept; }; }'")},
		{key: "table", with: "inet with the name of the reference plugin's", plugins: masq, prepare: run("nft add table inet cni_plugins_masquerade")},
		{key: "chain", with: "CNI-FORWARD of iptables", plugins: afterBridge(`{"type": "firewall", "backend": "iptables"}`), prepare: run("iptables -w -N CNI-FORWARD; iptables -w -A CNI-FORWARD -s 10.99.0.0/16 -j ACCEPT")},
		{key: "chain", with: "FORWARD of iptables drops", plugins: afterBridge(`{"type": "firewall", "backend": "iptables"}`), prepare: run("iptables -w -P FORWARD DROP")},
		{key: "vrf", with: "down", plugins: afterBridge(`{"type": "vrf", "vrfname": "blue", "table": 500}`), before: inA("link add blue type vrf table 500"), needs: "vrf"},
		{key: "vrf", with: "with another table", plugins: afterBridge(`{"type": "vrf", "vrfname": "blue", "table": 500}`), before: inA("link add blue type vrf table 600", "link set blue up"), needs: "vrf"},
		{key: "vrf", with: "no table wanted", plugins: afterBridge(`{"type": "vrf", "vrfname": "blue"}`), before: inA("link add blue type vrf table 600", "link set blue up"), needs: "vrf"},
		{key: "vrf", with: "is a bridge", plugins: afterBridge(`{"type": "vrf", "vrfname": "blue"}`), before: inA("link add blue type bridge"), needs: "vrf"},
		{key: "vlan", with: "the same ID on the parent", plugins: `{"type": "vlan", "master": "up0", "vlanId": 5, ` + hostLocal4 + `}`, prepare: func(h *host) { parent(h); h.ip("host", "link add link up0 name up0.5 type vlan id 5") }, needs: "vlan"},
		{key: "vlan", with: "another ID on the parent", plugins: `{"type": "vlan", "master": "up0", "vlanId": 5, ` + hostLocal4 + `}`, prepare: func(h *host) { parent(h); h.ip("host", "link add link up0 name up0.6 type vlan id 6") }, needs: "vlan"},
	}
	return of("existing", list)
}
