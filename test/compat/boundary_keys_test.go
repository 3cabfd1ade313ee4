package compat

// boundaryKeys returns every key with its valid values. The lists use IPv4, because the reference waits a second for
// duplicate address detection of IPv6.
func boundaryKeys() (out []boundaryKey) {
	n := func(v int64) *int64 { return new(v) }
	add := func(plugin, list string, c keyCase, keys ...boundaryKey) {
		for _, k := range keys {
			k.plugin, k.kase = plugin, c
			if k.list == "" {
				k.list = list
			}
			out = append(out, k)
		}
	}
	flag := func(key string) boundaryKey { return boundaryKey{key: key, typical: "true", other: "false"} }
	dns := boundaryKey{key: "dns", typical: `{"nameservers": ["192.0.2.53"]}`, other: `{"search": ["s"]}`,
		more: []string{`{"nameservers": []}`, `{"nameservers": null}`, `{"nameservers": "192.0.2.53"}`, `{"nameservers": [""]}`, `{"domain": ""}`, `{"search": []}`, `{"options": [""]}`, `{"domain": 1}`}}
	mtu := boundaryKey{key: "mtu", typical: "1400", other: "1300", min: n(68), max: n(65535), more: []string{"1279", "1280", "1500", "2147483648", "4294967296", "18446744073709551616", `"1400"`}}
	backend := boundaryKey{key: "ipMasqBackend", typical: `"nftables"`, other: `"iptables"`, more: []string{`"NFTABLES"`, `" nftables"`}}
	mac := boundaryKey{key: "mac", typical: `"02:00:00:00:00:15"`, other: `"02:00:00:00:00:16"`,
		more: []string{`"02-00-00-00-00-15"`, `"0200.0000.0015"`, `"00:00:00:00:00:00"`, `"ff:ff:ff:ff:ff:ff"`, `"01:00:00:00:00:05"`, `"02:00:00:00:00:05:06:07"`, `"2:0:0:0:0:5"`, `"02:00:00:00:00:0G"`}}

	add("bridge", `{"type": "bridge", "bridge": "cni0", @`+hostLocal4+`}`, keyCase{},
		flag("isGateway"), flag("isDefaultGateway"), flag("forceAddress"), flag("ipMasq"), backend, mtu, flag("hairpinMode"), flag("promiscMode"), flag("macspoofchk"),
		flag("enabledad"), flag("portIsolation"), flag("disableContainerInterface"), dns,
		boundaryKey{key: "bridge", list: `{"type": "bridge", @` + hostLocal4 + `}`, typical: `"br7"`, other: `"br8"`, more: []string{`"br-15-bytes-long"`, `"br-14-bytes-lon"`, `"a b"`, `"a/b"`, `"."`, `"lo"`, `"br:0"`}})
	add("bridge", `{"type": "bridge", "bridge": "cni0", @`+hostLocal4+`}`, keyCase{needs: vlanFiltering, meanwhile: portVLANs},
		boundaryKey{key: "vlan", typical: "100", other: "200", min: n(0), max: n(4094), more: []string{"4095", "4096", "65536"}},
		boundaryKey{key: "vlanTrunk", typical: `[{"id": 5}]`, other: `[{"minID": 10, "maxID": 12}]`, more: []string{`[{}]`, `[{"id": 0}]`, `[{"id": 4094}]`, `[{"id": 4095}]`, `[{"id": -1}]`,
			`[{"minID": 12, "maxID": 10}]`, `[{"minID": 10}]`, `[{"maxID": 10}]`, `[{"minID": 10, "maxID": 10}]`, `[{"minID": 0, "maxID": 10}]`, `[{"id": 5}, {"id": 5}]`, `[null]`, `[5]`}})
	add("bridge", `{"type": "bridge", "bridge": "cni0", "vlan": 100, @`+hostLocal4+`}`, keyCase{needs: vlanFiltering, meanwhile: portVLANs}, flag("preserveDefaultVlan"))
	add("ptp", `{"type": "ptp", @`+hostLocal4+`}`, keyCase{}, flag("ipMasq"), backend, mtu, dns)

	for _, s := range []struct{ plugin, more, needs string }{{"macvlan", "", "macvlan"}, {"ipvlan", "", "ipvlan"}, {"vlan", `"vlanId": 5, `, "vlan"}} {
		up := `{"type": "` + s.plugin + `", ` + s.more + `"master": "up0", @` + hostLocal4 + `}`
		c := keyCase{needs: s.needs, prepare: parent}
		add(s.plugin, up, c, dns, flag("linkInContainer"),
			boundaryKey{key: "mtu", typical: "1400", other: "1300", min: n(68), max: n(1500), more: []string{"1279", "1280", "65536"}},
			boundaryKey{key: "master", list: `{"type": "` + s.plugin + `", ` + s.more + `@` + hostLocal4 + `}`, typical: `"up0"`, more: []string{`"up9"`, `"a b"`, `"up0 "`}})
	}
	add("macvlan", `{"type": "macvlan", "master": "up0", @`+hostLocal4+`}`, keyCase{needs: "macvlan", prepare: parent}, mac,
		boundaryKey{key: "mode", typical: `"private"`, other: `"vepa"`, more: []string{`"bridge"`, `"passthru"`, `"BRIDGE"`, `"l2"`}},
		boundaryKey{key: "bcqueuelen", typical: "500", other: "700", min: n(0), max: n(4294967295), more: []string{"2147483647", "2147483648"}})
	add("ipvlan", `{"type": "ipvlan", "master": "up0", @`+hostLocal4+`}`, keyCase{needs: "ipvlan", prepare: parent},
		boundaryKey{key: "mode", typical: `"l3"`, other: `"l3s"`, more: []string{`"l2"`, `"L2"`, `"bridge"`}})
	add("vlan", `{"type": "vlan", "master": "up0", @`+hostLocal4+`}`, keyCase{needs: "vlan", prepare: parent},
		boundaryKey{key: "vlanId", typical: "5", other: "6", min: n(0), max: n(4094), more: []string{"4096"}})
	add("tap", `{"type": "tap", @`+hostLocal4+`}`, keyCase{needs: "tap"}, flag("multiQueue"), dns, mac,
		boundaryKey{key: "mtu", typical: "1400", other: "1300", min: n(68), max: n(65521), more: []string{"1279", "65535", "65536"}},
		boundaryKey{key: "owner", typical: "4242", other: "4343", min: n(0), max: n(4294967294), more: []string{"2147483648"}},
		boundaryKey{key: "group", typical: "4242", other: "4343", min: n(0), max: n(4294967294), more: []string{"2147483648"}},
		boundaryKey{key: "selinuxContext", typical: `"user_u:role_r:type_t:s0"`},
		boundaryKey{key: "bridge", typical: `"br9"`, more: []string{`"a b"`}})
	add("dummy", `{"type": "dummy", @`+hostLocal4+`}`, keyCase{needs: "dummy"}, dns)
	add("host-device", `{"type": "host-device", @"unused": 1}`, keyCase{prepare: device, alone: true},
		boundaryKey{key: "device", typical: `"dev0"`, more: []string{`"dev9"`, `"a b"`, `"dev0 "`}},
		boundaryKey{key: "hwaddr", typical: `"02:00:00:00:00:05"`, more: []string{`"02:00:00:00:00:99"`, `"02"`}},
		boundaryKey{key: "kernelpath", typical: `"/sys/devices/virtual/net/dev0"`, more: []string{`"/sys/../etc"`, `"relative"`}},
		boundaryKey{key: "pciBusID", typical: `"0000:ff:1f.7"`, more: []string{`"../x"`, `"a/b"`}})
	add("host-device", `{"type": "host-device", "device": "dev0", @`+hostLocal4+`}`, keyCase{prepare: device}, dns)
	add("host-device", `{"type": "host-device", "device": "dev0", @"unused": 1}`, keyCase{prepare: addressedDevice}, flag("useInterfaceNetwork"))

	asked := func(plugin string) boundaryKey {
		k := mac
		k.key, k.capArgs = "runtimeConfig.mac", `{@"x": 1}`
		k.list = map[string]string{
			"bridge":  bridgeWith(`"capabilities": {"mac": true}, `),
			"macvlan": `{"type": "macvlan", "master": "up0", "capabilities": {"mac": true}, ` + hostLocal4 + `}`,
			"tap":     `{"type": "tap", "capabilities": {"mac": true}, ` + hostLocal4 + `}`,
			"tuning":  afterBridge(`{"type": "tuning", "capabilities": {"mac": true}}`),
		}[plugin]
		return k
	}
	add("bridge", "", keyCase{}, asked("bridge"))
	add("macvlan", "", keyCase{needs: "macvlan", prepare: parent}, asked("macvlan"))
	add("tap", "", keyCase{needs: "tap"}, asked("tap"))
	add("tuning", "", keyCase{alone: true}, asked("tuning"))
	add("host-device", `{"type": "host-device", "device": "dev0", "capabilities": {"deviceID": true}}`, keyCase{prepare: device, alone: true},
		boundaryKey{key: "runtimeConfig.deviceID", capArgs: `{@"x": 1}`, typical: `"0000:ff:1f.7"`, more: []string{`"../x"`}})
	add("bandwidth", afterBridge(`{"type": "bandwidth", "capabilities": {"bandwidth": true}}`), keyCase{},
		boundaryKey{key: "runtimeConfig.bandwidth", capArgs: `{@"x": 1}`, typical: `{"ingressRate": 1000000, "ingressBurst": 1000000}`, other: `{"egressRate": 1000000, "egressBurst": 1000000}`,
			more: []string{`{"ingressRate": 0}`, `{"ingressRate": null}`, `{"ingressRate": -1}`, `{"ingressRate": 7, "ingressBurst": 1000000}`, `{"ingressBurst": 1}`, `{"IngressRate": 1000000, "IngressBurst": 1000000}`}})

	pool := func(keys string) string {
		return `{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", ` + keys + `}}`
	}
	add("host-local", "", keyCase{},
		boundaryKey{key: "subnet", list: pool(`@"routes": []`), typical: `"10.1.0.0/24"`, other: `"10.2.0.0/24"`, more: []string{`"10.1.0.0"`, `"10.1.0.7/24"`, `"10.1.0.0/0"`, `"10.1.0.0/29"`, `"10.1.0.0/30"`, `"10.1.0.0/31"`, `"10.1.0.0/32"`, `"10.1.0.0/33"`,
			`"::ffff:10.1.0.0/120"`, `"010.1.0.0/24"`, `" 10.1.0.0/24"`, `"224.0.0.0/24"`, `"0.0.0.0/8"`}},
		boundaryKey{key: "rangeStart", list: pool(`@"subnet": "10.1.0.0/24"`), typical: `"10.1.0.20"`, other: `"10.1.0.30"`, more: []string{`"10.1.0.0"`, `"10.1.0.1"`, `"10.1.0.254"`, `"10.1.0.255"`, `"10.2.0.1"`, `"10.1.0.20/24"`, `"::1"`, `"10.1.0"`}},
		boundaryKey{key: "rangeEnd", list: pool(`@"subnet": "10.1.0.0/24"`), typical: `"10.1.0.20"`, other: `"10.1.0.30"`, more: []string{`"10.1.0.0"`, `"10.1.0.1"`, `"10.1.0.2"`, `"10.1.0.255"`, `"10.2.0.1"`, `"::1"`}},
		boundaryKey{key: "gateway", list: pool(`@"subnet": "10.1.0.0/24"`), typical: `"10.1.0.254"`, other: `"10.1.0.9"`, more: []string{`"10.1.0.0"`, `"10.1.0.1"`, `"10.1.0.255"`, `"10.2.0.1"`, `"0.0.0.0"`, `"::1"`, `"fe80::1"`, `"10.1.0.254/24"`}},
		boundaryKey{key: "ranges", list: pool(`@"routes": []`), typical: `[[{"subnet": "10.1.0.0/24"}]]`, other: `[[{"subnet": "10.2.0.0/24"}]]`, more: []string{`[[]]`, `[[{}]]`, `[null]`, `[[null]]`, `[{"subnet": "10.1.0.0/24"}]`,
			`[[{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/24"}]]`, `[[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/25"}]]`, `[[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}]]`}},
		boundaryKey{key: "routes", list: pool(`@"subnet": "10.1.0.0/24"`), typical: `[{"dst": "0.0.0.0/0"}]`, other: `[{"dst": "10.9.0.0/16"}]`, more: append(routeValues(), `[null]`, `{"dst": "0.0.0.0/0"}`)},
		boundaryKey{key: "resolvConf", list: pool(`@"subnet": "10.1.0.0/24"`), typical: `"$DIR/none"`, more: []string{`"relative"`, `"/"`}})
	add("host-local", "", keyCase{alone: true}, // the default is in /var/lib
		boundaryKey{key: "dataDir", list: `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", @"routes": []}}`, typical: `"$DIR/ipam"`, other: `"$DIR/other"`})

	fixed := func(keys string) string {
		return `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "static", ` + keys + `}}`
	}
	add("static", "", keyCase{},
		boundaryKey{key: "addresses", list: fixed(`@"routes": []`), typical: `[{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}]`, other: `[{"address": "10.2.0.6/24"}]`, more: []string{`[{}]`, `[null]`, `[{"address": "10.2.0.5"}]`, `[{"address": "10.2.0.0/24"}]`, `[{"address": "10.2.0.255/24"}]`,
			`[{"address": "10.2.0.5/0"}]`, `[{"address": "10.2.0.5/31"}]`, `[{"address": "10.2.0.5/32"}]`, `[{"address": "10.2.0.5/33"}]`, `[{"address": "0.0.0.0/24"}]`, `[{"address": "224.0.0.5/24"}]`, `[{"address": "127.0.0.5/8"}]`,
			`[{"address": "10.2.0.5/24", "gateway": "10.3.0.1"}]`, `[{"address": "10.2.0.5/24", "gateway": "::1"}]`, `[{"address": "10.2.0.5/24", "gateway": ""}]`, `[{"address": "10.2.0.5/24"}, {"address": "10.2.0.5/24"}]`,
			`[{"address": "10.2.0.5/24"}, {"address": "10.2.0.6/24"}]`, `[{"address": ""}]`, `[{"address": "::ffff:10.2.0.5/120"}]`, `[{"Address": "10.2.0.5/24"}]`}},
		boundaryKey{key: "routes", list: fixed(`@"addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]`), typical: `[{"dst": "0.0.0.0/0"}]`, other: `[{"dst": "10.9.0.0/16"}]`, more: routeValues()},
		boundaryKey{key: "dns", list: fixed(`@"addresses": [{"address": "10.1.0.5/24"}]`), typical: `{"nameservers": ["192.0.2.53"]}`, other: `{"search": ["s"]}`, more: dns.more})

	lease := func(keys string) string {
		return `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "dhcp", "daemonSocketPath": "$DIR/dhcp.sock", ` + keys + `}}`
	}
	add("dhcp", "", keyCase{prepare: dhcp(), alone: true}, // the default is in /run
		boundaryKey{key: "daemonSocketPath", list: `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "dhcp", @"unused": 1}}`, typical: `"$DIR/dhcp.sock"`, other: `"$DIR/no.sock"`, more: []string{`"/"`}})
	add("dhcp", "", keyCase{prepare: dhcp()},
		boundaryKey{key: "priority", list: lease(`@"unused": 1`), typical: "7", other: "8", min: n(0), max: n(4294967295)},
		boundaryKey{key: "request.skipDefault", list: lease(`"request": [{@"option": "routers"}]`), typical: "true", other: "false"},
		boundaryKey{key: "provide.fromArg", list: lease(`"provide": [{@"option": "host-name", "value": "web"}]`), typical: `"K8S_POD_NAME"`, other: `"OTHER"`},
		boundaryKey{key: "request", list: lease(`@"unused": 1`), typical: `[{"option": "26"}]`, other: `[{"option": "subnet-mask"}]`, more: []string{`[{}]`, `[null]`, `[{"option": "0"}]`, `[{"option": "255"}]`, `[{"option": "256"}]`, `[{"option": 26}]`, `[{"option": "26"}, {"option": "26"}]`}},
		boundaryKey{key: "provide", list: lease(`@"unused": 1`), typical: `[{"option": "60", "value": "class"}]`, other: `[{"option": "host-name", "value": "web"}]`, more: []string{`[{}]`, `[null]`, `[{"option": "60"}]`, `[{"option": "60", "value": ""}]`, `[{"option": "0", "value": "x"}]`, `[{"option": "256", "value": "x"}]`}})

	web := `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`
	add("portmap", portmapWith("", "@"), keyCase{}, boundaryKey{key: "backend", typical: `"nftables"`, other: `"iptables"`, capArgs: web, more: []string{`"NFTABLES"`}})
	for _, b := range []string{"nftables", "iptables"} {
		add("portmap", portmapWith(b, "@"), keyCase{},
			boundaryKey{key: "snat", typical: "true", other: "false", capArgs: web}, boundaryKey{key: "masqAll", typical: "true", other: "false", capArgs: web},
			boundaryKey{key: "conditionsV4", typical: map[string]string{"nftables": `["ip", "saddr", "192.0.2.0/24"]`, "iptables": `["-s", "192.0.2.0/24"]`}[b], capArgs: web, more: []string{`[""]`}},
			boundaryKey{key: "conditionsV6", typical: map[string]string{"nftables": `["ip6", "saddr", "2001:db8::/64"]`, "iptables": `["-s", "2001:db8::/64"]`}[b], capArgs: web, more: []string{`[""]`}},
			boundaryKey{key: "hostPort", capArgs: `{"portMappings": [{@"containerPort": 80, "protocol": "tcp"}]}`, typical: "8080", other: "8081", min: n(1), max: n(65535), more: []string{`"8080"`}},
			boundaryKey{key: "containerPort", capArgs: `{"portMappings": [{@"hostPort": 8080, "protocol": "tcp"}]}`, typical: "80", other: "81", min: n(1), max: n(65535)},
			boundaryKey{key: "protocol", capArgs: `{"portMappings": [{@"hostPort": 8080, "containerPort": 80}]}`, typical: `"tcp"`, other: `"udp"`, more: []string{`"TCP"`, `"sctp"`, `"icmp"`, `" tcp"`}},
			boundaryKey{key: "hostIP", capArgs: `{"portMappings": [{@"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`, typical: `"192.0.2.1"`, other: `"0.0.0.0"`, more: []string{`"::"`, `"::1"`, `"127.0.0.1"`, `"2001:db8::1"`, `"192.0.2.1/24"`, `"::ffff:192.0.2.1"`, `"256.0.0.1"`}})
	}
	add("portmap", portmapWith("iptables", "@"), keyCase{},
		boundaryKey{key: "markMasqBit", capArgs: web, typical: "5", other: "13", min: n(0), max: n(31)})
	add("portmap", portmapWith("iptables", "@"), keyCase{prepare: kubeMarks},
		boundaryKey{key: "externalSetMarkChain", capArgs: web, typical: `"KUBE-MARK-MASQ"`})

	bps := func(key, with string, min, max int64) boundaryKey {
		return boundaryKey{key: key, list: afterBridge(`{"type": "bandwidth", @` + with + `"unused": 1}`), typical: "1000000", other: "2000000", min: n(min), max: n(max)}
	}
	add("bandwidth", "", keyCase{},
		bps("ingressRate", `"ingressBurst": 1000000, `, 8, 1<<43), bps("egressRate", `"egressBurst": 1000000, `, 8, 1<<43),
		bps("ingressBurst", `"ingressRate": 1000000, `, 8, maxBurst), bps("egressBurst", `"egressRate": 1000000, `, 8, maxBurst))
	add("firewall", afterBridge(`{"type": "firewall", @"unused": 1}`), keyCase{},
		boundaryKey{key: "backend", typical: `"iptables"`, other: `"nftables"`, more: []string{`"firewalld"`, `"IPTABLES"`}},
		boundaryKey{key: "iptablesAdminChainName", list: afterBridge(`{"type": "firewall", "backend": "iptables", @"unused": 1}`), typical: `"MINE"`, other: `"OTHER"`, more: []string{`"a-name-of-29-bytes-is-too-long"`, `"a b"`, `"CNI-FORWARD"`}},
		boundaryKey{key: "firewalldZone", typical: `"internal"`},
		boundaryKey{key: "ingressPolicy", typical: `"same-bridge"`, other: `"open"`, more: []string{`"isolated"`, `"SAME-BRIDGE"`}})
	const show = "cat /sys/class/net/eth0/tx_queue_len 2>/dev/null; " +
		"ip -o link show eth0 | sed 's/.*mtu/mtu/; s/ qdisc.*qlen/ qlen/; s/link-netns.*//; s/ group [a-z0-9]*//'; " +
		"sysctl -n net.core.somaxconn net.ipv4.conf.eth0.arp_filter"
	// The default of dataDir is in /run.
	add("tuning", afterBridge(`{"type": "tuning", @"unused": 1}`), keyCase{alone: true, meanwhile: inContainer("link", show)},
		mac, flag("promisc"), flag("allmulti"),
		boundaryKey{key: "mtu", typical: "1400", other: "1300", min: n(68), max: n(65535), more: []string{"1279", "1280", "65536"}},
		boundaryKey{key: "txQLen", typical: "500", other: "700", min: n(0), max: n(2147483647), more: []string{"4294967295", "4294967296"}},
		boundaryKey{key: "sysctl", typical: `{"net.core.somaxconn": "500"}`, other: `{"net.core.somaxconn": "600"}`, more: []string{`{"net.core.somaxconn": 500}`, `{"net.core.somaxconn": ""}`, `{"net.core.somaxconn": null}`, `{"net.core.somaxconn": "-1"}`,
			`{"net.core.somaxconn": "99999999999"}`, `{"net.core.somaxconn": "x"}`, `{"net.core.somaxconn": " 500 "}`, `{"net.core.somaxconn": "0500"}`, `{"": "1"}`, `{"net": "1"}`, `{"net.ipv4.conf.IFNAME.arp_filter": "1"}`, `{"net.ipv4.conf.IFNAME.arp_filter": "true"}`,
			`{"net/core/somaxconn": "500"}`, `{"net.core.somaxconn": "500", "net.core.somaxconn": "600"}`, `{"net.core.nothing": "1"}`, `{"kernel.hostname": "x"}`, `{"net..core.somaxconn": "1"}`, `{"../net.core.somaxconn": "1"}`}},
		boundaryKey{key: "dataDir", typical: `"$DIR/tuning"`, other: `"$DIR/other"`})

	add("sbr", afterBridge(`{"type": "sbr", @"unused": 1}`), keyCase{},
		boundaryKey{key: "table", typical: "100", other: "200", min: n(1), max: n(4294967295), more: []string{"253", "254", "255", "256", "2147483648", "4294967295", "4294967296"}},
		flag("addSourceHints"), boundaryKey{key: "gateways", typical: `["10.1.0.1"]`, other: `["10.1.0.77"]`,
			more: []string{`[]`, `[""]`, `[null]`, `["10.1.0"]`, `["10.1.0.1", "10.1.0.1"]`, `["10.9.0.1"]`, `["fd01::1"]`, `["fe80::1%eth0"]`, `["::ffff:10.1.0.1"]`, `["0.0.0.0"]`, `["10.1.0.1/24"]`, `"10.1.0.1"`}})
	add("vrf", afterBridge(`{"type": "vrf", @"vrfname": "blue"}`), keyCase{needs: "vrf"},
		boundaryKey{key: "table", typical: "100", other: "200", min: n(1), max: n(4294967295), more: []string{"253", "254", "255", "256", "2147483648", "4294967295"}},
		boundaryKey{key: "vrfname", list: afterBridge(`{"type": "vrf", @"table": 100}`), typical: `"blue"`, other: `"red"`, more: []string{`"a b"`, `"eth0"`, `"a-name-of-16-byt"`}})
	return out
}

// maxBurst is the largest burst in bits: less than 4 GiB.
const maxBurst = 8 * (1<<32 - 1)

// routeValues returns lists of routes whose keys have boundary values.
func routeValues() []string {
	out := []string{`[{}]`, `[{"dst": ""}]`, `[{"dst": null}]`, `[{"dst": "10.9.0.0"}]`, `[{"dst": "10.9.0.7/16"}]`, `[{"dst": "10.9.0.0/33"}]`, `[{"dst": "10.9.0.0/32"}]`, `[{"dst": "10.1.0.0/24"}]`, `[{"dst": "10.9.0.0/16"}, {"dst": "10.9.0.0/16"}]`,
		`[{"dst": "10.9.0.0/16", "gw": ""}]`, `[{"dst": "10.9.0.0/16", "gw": null}]`, `[{"dst": "10.9.0.0/16", "gw": "10.1.0.9"}]`, `[{"dst": "10.9.0.0/16", "gw": "10.7.0.9"}]`, `[{"dst": "10.9.0.0/16", "gw": "::1"}]`, `[{"dst": "10.9.0.0/16", "gw": "0.0.0.0"}]`}
	for _, k := range []struct {
		key    string
		values []string
	}{
		{"mtu", []string{"-1", "0", "1", "67", "68", "65535", "65536", "4294967296"}},
		{"advmss", []string{"-1", "0", "1", "65535", "65536"}},
		{"priority", []string{"-1", "0", "1", "4294967295", "4294967296"}},
		{"table", []string{"-1", "0", "1", "253", "254", "255", "256", "4294967295", "4294967296"}},
		{"scope", []string{"-1", "0", "200", "253", "254", "255", "256"}},
	} {
		for _, v := range k.values {
			out = append(out, `[{"dst": "10.9.0.0/16", "`+k.key+`": `+v+`}]`)
		}
	}
	return out
}
