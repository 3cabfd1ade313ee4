package compat

// This file tests the keys of macvlan, ipvlan and vlan.

// ownInterface creates an interface in0 in each container. It needs no world.
func ownInterface(r *recorder) {
	for _, n := range []string{"a", "b"} {
		if r.Netns[n] != "" {
			r.ip(n, "link add in0 address 02:00:00:00:00:05 type veth peer name in1", "link set in0 up", "link set in1 up")
		}
	}
}

// defaultRoute is like parent, with a default route through up0.
func defaultRoute(h *host) {
	parent(h)
	h.ip("host", "addr add 192.0.2.1/24 dev up0", "route add default via 192.0.2.9")
}

// defaultRoute6 is like parent, with only an IPv6 default route.
func defaultRoute6(h *host) {
	parent(h)
	h.ip("host", "addr add 2001:db8::1/64 dev up0 nodad", "route add default via 2001:db8::9")
}

func stackedKeys(plugin, more, feature string) []keyCase {
	begin := `{"type": "` + plugin + `", ` + more
	up := begin + `"master": "up0", `
	out := []probe{{"a", "tcp", "10.1.0.9:7"}}
	inside := begin + `"linkInContainer": true, `
	list := []keyCase{
		{key: "master", plugins: up + hostLocal4 + `}`, prepare: parent, probes: out},
		{key: "master", with: "absent", plugins: begin + hostLocal4 + `}`, prepare: defaultRoute},
		{key: "master", with: "absent, no default route", plugins: begin + hostLocal4 + `}`, prepare: parent},
		{key: "master", with: "absent, default route of IPv6", plugins: begin + hostLocal4 + `}`, prepare: defaultRoute6},
		{key: "master", with: "down", plugins: up + hostLocal4 + `}`, prepare: func(h *host) { parent(h); h.ip("host", "link set up0 down") }},
		{key: "master", with: "missing", plugins: begin + `"master": "dev9", ` + hostLocal4 + `}`, prepare: parent},
		{key: "mtu", plugins: up + `"mtu": 1400, ` + hostLocal4 + `}`, prepare: parent},
		{key: "mtu", with: "below 1280", plugins: up + `"mtu": 1279, ` + hostLocal4 + `}`, prepare: parent},
		{key: "mtu", with: "the parent's", plugins: up + `"mtu": 1500, ` + hostLocal4 + `}`, prepare: parent},
		{key: "mtu", with: "more than the parent's", plugins: up + `"mtu": 1501, ` + hostLocal4 + `}`, prepare: parent},
		{key: "mtu", with: "negative", plugins: up + `"mtu": -1, ` + hostLocal4 + `}`, prepare: parent},
		{key: "linkInContainer", plugins: inside + `"master": "in0", ` + hostLocal4 + `}`, before: ownInterface},
		{key: "linkInContainer", with: "no such interface", plugins: inside + `"master": "up0", ` + hostLocal4 + `}`, prepare: parent},
		{key: "dns", plugins: up + `"dns": {"nameservers": ["192.0.2.53"], "search": ["s"]}, ` + hostLocal4 + `}`, prepare: parent},
		{key: "ipam", with: "absent", plugins: up + `"mtu": 0}`, prepare: parent},
		{key: "ipam", with: "two families", plugins: up + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd09::/64"}]}}`, prepare: parent, probes: append(out, probe{"a", "tcp", "[fd01::9]:7"})},
	}
	list = append(list, dnsOverIPAM(up, parent)...)
	for i := range list {
		list[i].needs = feature
	}
	return of(plugin, list)
}

func macvlanKeys() []keyCase {
	up := `{"type": "macvlan", "master": "up0", `
	with := func(keys string) string { return up + keys + hostLocal4 + `}` }
	each := []probe{{"b", "tcp", "10.1.0.2:80"}, {"a", "tcp", "10.1.0.9:7"}}
	const args = `"args": {"cni": {"mac": "02:00:00:00:00:ab"}}, `
	list := []keyCase{
		{key: "mode", with: "bridge", plugins: with(`"mode": "bridge", `), second: true, probes: each},
		{key: "mode", with: "private", plugins: with(`"mode": "private", `), second: true, probes: each},
		{key: "mode", with: "vepa", plugins: with(`"mode": "vepa", `), second: true, probes: each},
		{key: "mode", with: "passthru", plugins: with(`"mode": "passthru", `), probes: each[1:]},
		{key: "mode", with: "passthru, and mac", plugins: with(`"mode": "passthru", "mac": "02:00:00:00:00:aa", `)},
		{key: "mode", with: "unknown", plugins: with(`"mode": "source", `)},
		{key: "bcqueuelen", plugins: with(`"bcqueuelen": 2000, `)},
		{key: "bcqueuelen", with: "negative", plugins: with(`"bcqueuelen": -1, `)},
		{key: "mac", plugins: with(`"mac": "02:00:00:00:00:ad", `)},
		{key: "mac", with: "none", plugins: with(`"mac": "eth0", `)},
		{key: "runtimeConfig.mac", plugins: with(`"mac": "02:00:00:00:00:ad", "capabilities": {"mac": true}, `), capArgs: `{"mac": "02:00:00:00:00:aa"}`},
		{key: "args.cni.mac", plugins: with(args)},
		{key: "MAC in CNI_ARGS", plugins: with(`"mac": "02:00:00:00:00:ad", `), cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
		{key: "mac", with: "from all four", plugins: with(`"mac": "02:00:00:00:00:ad", "capabilities": {"mac": true}, ` + args), capArgs: `{"mac": "02:00:00:00:00:aa"}`, cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
	}
	for i := range list {
		list[i].prepare = parent
	}
	return append(of("macvlan", list), stackedKeys("macvlan", "", "")...)
}

func ipvlanKeys() []keyCase {
	up := `{"type": "ipvlan", "master": "up0", `
	each := []probe{{"b", "tcp", "10.1.0.2:80"}, {"a", "tcp", "10.1.0.9:7"}}
	list := []keyCase{
		{key: "mode", with: "l2", plugins: up + `"mode": "l2", ` + hostLocal4 + `}`, second: true, probes: each},
		{key: "mode", with: "l3", plugins: up + `"mode": "l3", ` + hostLocal4 + `}`, second: true, probes: each[:1]},
		{key: "mode", with: "l3s", plugins: up + `"mode": "l3s", ` + hostLocal4 + `}`, second: true, probes: each[:1]},
		{key: "mode", with: "unknown", plugins: up + `"mode": "l4", ` + hostLocal4 + `}`},
		{key: "prevResult", with: "has addresses", plugins: `{"type": "host-local", ` + hostLocal4 + `}, {"type": "ipvlan", "master": "up0"}`},
		{key: "prevResult", with: "has no interface", plugins: `{"type": "host-local", ` + hostLocal4 + `}, {"type": "ipvlan"}`},
	}
	for i := range list {
		list[i].prepare, list[i].needs = parent, "ipvlan"
	}
	return append(of("ipvlan", list), stackedKeys("ipvlan", "", "ipvlan")...)
}

func vlanKeys() []keyCase {
	with := func(id string) string { return `{"type": "vlan", "master": "up0", ` + id + hostLocal4 + `}` }
	out := []probe{{"a", "tcp", "10.1.0.9:7"}}
	list := []keyCase{
		{key: "vlanId", plugins: with(`"vlanId": 100, `), probes: out},
		{key: "vlanId", with: "another", plugins: with(`"vlanId": 101, `), probes: out},
		{key: "vlanId", with: "absent", plugins: with("")},
		{key: "vlanId", with: "5000", plugins: with(`"vlanId": 5000, `)},
		{key: "vlanId", with: "negative", plugins: with(`"vlanId": -1, `)},
	}
	for i := range list {
		list[i].prepare, list[i].needs = vlanParent, "vlan"
	}
	return append(of("vlan", list), stackedKeys("vlan", `"vlanId": 100, `, "vlan")...)
}
