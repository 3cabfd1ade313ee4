package compat

// This file tests the keys of tap, and dummy, which has no keys.

func tapKeys() []keyCase {
	with := func(keys string) string { return `{"type": "tap", ` + keys + hostLocal4 + `}` }
	const args = `"args": {"cni": {"mac": "02:00:00:00:00:ab"}}, `
	bridge := func(r *recorder) {
		r.ip("a", "link add br0 address 02:00:00:00:00:05 type bridge", "link set br0 up")
	}
	return of("tap", append(dnsOverIPAM(`{"type": "tap", `, nil), []keyCase{
		{key: "multiQueue", plugins: with(`"multiQueue": true, `), second: true},
		{key: "multiQueue", with: "absent", plugins: with("")},
		{key: "mtu", plugins: with(`"mtu": 1400, `)},
		{key: "mtu", with: "below 1280", plugins: with(`"mtu": 1279, `)},
		{key: "mtu", with: "negative", plugins: with(`"mtu": -1, `)},
		{key: "owner", plugins: with(`"owner": 4242, `)},
		{key: "group", plugins: with(`"group": 4343, `)},
		{key: "owner", with: "and group, of root", plugins: with(`"owner": 0, "group": 0, `)},
		{key: "owner", with: "and group, and queues", plugins: with(`"owner": 4242, "group": 4343, "multiQueue": true, `)},
		{key: "selinuxContext", with: "not known here", plugins: with(`"selinuxContext": "user_u:role_r:nosuch_t:s0", `)},
		{key: "selinuxContext", plugins: with(`"selinuxContext": "kernel", `), needs: "SELinux"},
		{key: "bridge", plugins: with(`"bridge": "br0", `), before: bridge},
		{key: "bridge", with: "missing", plugins: with(`"bridge": "br0", `)},
		{key: "mac", plugins: with(`"mac": "02:00:00:00:00:ad", `)},
		{key: "mac", with: "and multiQueue", plugins: with(`"mac": "02:00:00:00:00:ad", "multiQueue": true, `)},
		{key: "mac, mtu", with: "and owner and group", plugins: with(`"mac": "02:00:00:00:00:ad", "mtu": 1400, "owner": 4242, "group": 4343, `)},
		{key: "runtimeConfig.mac", plugins: with(`"capabilities": {"mac": true}, `), capArgs: `{"mac": "02:00:00:00:00:aa"}`},
		{key: "args.cni.mac", plugins: with(args)},
		{key: "MAC in CNI_ARGS", plugins: with(""), cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
		{key: "mac", with: "from all four", plugins: with(`"mac": "02:00:00:00:00:ad", "capabilities": {"mac": true}, ` + args), capArgs: `{"mac": "02:00:00:00:00:aa"}`, cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
		{key: "dns", plugins: with(`"dns": {"nameservers": ["192.0.2.53"], "search": ["s"]}, `)},
		{key: "ipam", with: "absent", plugins: `{"type": "tap", "mtu": 0}`},
		{key: "ipam", with: "two families", plugins: `{"type": "tap", ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd09::/64"}]}}`},
	}...))
}

func dummyKeys() []keyCase {
	list := []keyCase{
		{key: "type", with: "two families", plugins: `{"type": "dummy", ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd09::/64"}]}}`},
		{key: "type", with: "two containers", plugins: `{"type": "dummy", ` + hostLocal4 + `}`, second: true},
		{key: "dns", plugins: `{"type": "dummy", "dns": {"nameservers": ["192.0.2.53"], "search": ["s"]}, ` + hostLocal4 + `}`},
		{key: "ipam", with: "absent", plugins: `{"type": "dummy"}`},
	}
	for i := range list {
		list[i].needs = "dummy"
	}
	return of("dummy", list)
}
