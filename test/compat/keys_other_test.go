package compat

// This file tests the keys of the other plugins that create or allocate something.

func ptpKeys() []keyCase {
	const routed = `"ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}`
	out := []probe{{"a", "tcp", "192.0.2.9:7"}, {"host", "tcp", "10.1.0.2:80"}}
	list := []keyCase{
		{key: "ipMasq", with: "false", plugins: `{"type": "ptp", ` + routed, prepare: (*host).world, probes: out},
		{key: "ipMasq", with: "true", plugins: `{"type": "ptp", "ipMasq": true, ` + routed, prepare: (*host).world, second: true, probes: append(out, probe{"b", "tcp", "10.1.0.2:80"})},
		{key: "ipMasqBackend", with: "iptables", plugins: `{"type": "ptp", "ipMasq": true, "ipMasqBackend": "iptables", ` + routed, prepare: (*host).world, probes: out},
		{key: "ipMasqBackend", with: "nftables", plugins: `{"type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables", ` + routed, prepare: (*host).world, probes: out},
		{key: "mtu", plugins: `{"type": "ptp", "mtu": 1400, ` + routed},
		{key: "mtu", with: "below 1280", plugins: `{"type": "ptp", "mtu": 1279, ` + routed, probes: out[1:]},
		{key: "ipam.gateway", with: "outside the subnet", plugins: `{"type": "ptp", "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "subnet": "10.1.0.0/24", "gateway": "10.2.0.1", "routes": [{"dst": "0.0.0.0/0"}]}}`, probes: []probe{{"host", "tcp", "10.1.0.1:80"}}},
		{key: "dns", plugins: `{"type": "ptp", "dns": {"nameservers": ["192.0.2.53"], "domain": "d"}, ` + routed},
	}
	list = append(list, dnsOverIPAM(`{"type": "ptp", `, nil)...)
	return append(of("ptp", list), routeKeys("ptp", `{"type": "ptp", `)...)
}

// dnsOverIPAM returns cases of DNS settings that are absent, or present and empty, next to DNS settings from IPAM.
func dnsOverIPAM(begin string, prepare func(*host)) (list []keyCase) {
	const own = `"ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}], "dns": {"nameservers": ["192.0.2.54"], "domain": "d"}}}`
	const ipam = `, ` + own
	list = append(list, keyCase{key: "dns", with: "from ipam", plugins: begin + own, prepare: prepare})
	for _, key := range []string{"nameservers", "search", "options"} {
		list = append(list, keyCase{key: "dns", with: "empty " + key + " over ipam", plugins: begin + `"dns": {"` + key + `": []}` + ipam, prepare: prepare})
	}
	return list
}

func hostDeviceKeys() []keyCase {
	const ipam = `"ipam": {"type": "static", "addresses": [{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}`
	out := []probe{{"a", "tcp", "10.2.0.9:7"}}
	return of("host-device", append(dnsOverIPAM(`{"type": "host-device", "device": "dev0", `, device), []keyCase{
		{key: "device", plugins: `{"type": "host-device", "device": "dev0", ` + ipam, prepare: device, probes: out},
		{key: "device", with: "without ipam", plugins: `{"type": "host-device", "device": "dev0"}`, prepare: device},
		{key: "device", with: "missing", plugins: `{"type": "host-device", "device": "dev9", ` + ipam, prepare: device},
		{key: "hwaddr", plugins: `{"type": "host-device", "hwaddr": "02:00:00:00:00:05", ` + ipam, prepare: device, probes: out},
		{key: "kernelpath", plugins: `{"type": "host-device", "kernelpath": "/sys/devices/virtual", ` + ipam, prepare: device, probes: out, alone: true},
		{key: "pciBusID", with: "missing", plugins: `{"type": "host-device", "pciBusID": "0000:ff:1f.7", ` + ipam, prepare: device, alone: true},
		{key: "runtimeConfig.deviceID", with: "missing", plugins: `{"type": "host-device", "capabilities": {"deviceID": true}, ` + ipam, prepare: device, capArgs: `{"deviceID": "0000:ff:1f.7"}`, alone: true},
		{key: "device", with: "none of the four", plugins: `{"type": "host-device", ` + ipam, prepare: device},
		{key: "useInterfaceNetwork", plugins: `{"type": "host-device", "device": "dev0", "useInterfaceNetwork": true}`, prepare: addressedDevice, probes: out, meanwhile: tablesInside()},
		{key: "useInterfaceNetwork", with: "and ipam", plugins: `{"type": "host-device", "device": "dev0", "useInterfaceNetwork": true, ` +
			`"ipam": {"type": "static", "addresses": [{"address": "10.3.0.5/24", "gateway": "10.3.0.1"}], "routes": [{"dst": "10.8.0.0/16"}]}}`, prepare: addressedDevice, probes: out, meanwhile: tablesInside()},
		{key: "useInterfaceNetwork", with: "without addresses", plugins: `{"type": "host-device", "device": "dev0", "useInterfaceNetwork": true}`, prepare: device},
		{key: "useInterfaceNetwork", with: "false", plugins: `{"type": "host-device", "device": "dev0", "useInterfaceNetwork": false}`, prepare: addressedDevice},
	}...))
}

func hostLocalKeys() []keyCase {
	with := func(keys string) string {
		return `{"type": "host-local", "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", ` + keys + `}}`
	}
	const two = `"ranges": [[{"subnet": "10.1.0.0/29"}, {"subnet": "10.1.1.0/29"}], [{"subnet": "fd01::/64"}]]`
	asked := func(more string) string {
		return `{"type": "host-local", ` + more + `"ipam": {"type": "host-local", "dataDir": "$DIR/ipam", ` + two + `}}`
	}
	return of("host-local", []keyCase{
		{key: "ranges", plugins: with(two), second: true},
		{key: "subnet", plugins: with(`"subnet": "10.1.0.0/24"`), second: true},
		{key: "rangeStart, rangeEnd", plugins: with(`"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.20", "rangeEnd": "10.1.0.20"`), second: true},
		{key: "gateway", plugins: with(`"subnet": "10.1.0.0/24", "gateway": "10.1.0.254"`)},
		{key: "routes", plugins: with(`"subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.1.0.9", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 100, "scope": 0}]`)},
		{key: "routes", with: "keys of 1.1.0 at 1.0.0", version: "1.0.0", plugins: with(`"subnet": "10.1.0.0/24", "routes": [{"dst": "10.9.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 100, "scope": 0}]`)},
		{key: "resolvConf", plugins: with(`"subnet": "10.1.0.0/24", "resolvConf": "$DIR/lib/resolv.conf"`), prepare: resolvConf},
		{key: "dataDir", with: "absent", plugins: `{"type": "host-local", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}`, alone: true,
			meanwhile: func(r *recorder) {
				r.note("addresses in /var/lib/cni", r.files("lib/cni/networks", func(s string) string { return s }))
			}},
		{key: "runtimeConfig.ipRanges", plugins: asked(`"capabilities": {"ipRanges": true}, `), capArgs: `{"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}`},
		{key: "runtimeConfig.ips", plugins: asked(`"capabilities": {"ips": true}, `), capArgs: `{"ips": ["10.1.1.3/29", "fd01::99"]}`, second: true},
		{key: "args.cni.ips", plugins: asked(`"args": {"cni": {"ips": ["10.1.1.4", "fd01::98"]}}, `)},
		{key: "IP in CNI_ARGS", plugins: asked(""), cniArgs: "IP=10.1.1.5"},
	})
}

func staticKeys() []keyCase {
	const one = `"addresses": [{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}]`
	with := func(more, keys string) string {
		return `{"type": "static", ` + more + `"ipam": {"type": "static", ` + keys + `}}`
	}
	return of("static", []keyCase{
		{key: "addresses", plugins: with("", `"addresses": [{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}, {"address": "fd02::5/64"}]`)},
		{key: "addresses", with: "IPv4 in IPv6 notation", plugins: with("", `"addresses": [{"address": "::ffff:10.2.0.5/120", "gateway": "10.2.0.1"}]`)},
		{key: "routes", plugins: with("", one+`, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.2.0.9", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 100, "scope": 0}]`)},
		{key: "routes", with: "keys of 1.1.0 at 0.4.0", version: "0.4.0", plugins: with("", one+`, "routes": [{"dst": "10.9.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 100, "scope": 0}]`)},
		{key: "dns", plugins: with("", one+`, "dns": {"nameservers": ["192.0.2.53"], "domain": "d", "search": ["s"], "options": ["o"]}`)},
		{key: "runtimeConfig.ips", plugins: with(`"capabilities": {"ips": true}, `, one), capArgs: `{"ips": ["10.2.0.77/24", "fd02::77/64"]}`},
		{key: "args.cni.ips", plugins: with(`"args": {"cni": {"ips": ["10.2.0.78/24"]}}, `, one)},
		{key: "IP, GATEWAY in CNI_ARGS", plugins: with("", one), cniArgs: "IP=10.2.0.79/24;GATEWAY=10.2.0.2"},
	})
}

func resolvConf(h *host) {
	h.file("lib/resolv.conf", "nameserver 192.0.2.53\nsearch a b\noptions ndots:2\ndomain d\n")
}
