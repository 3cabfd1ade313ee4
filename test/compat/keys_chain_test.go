package compat

import (
	"regexp"
	"slices"
	"strings"
)

// This file tests the keys of the chained plugins other than portmap.

// afterBridge returns the start of a list: a bridge, followed by another plugin.
func afterBridge(plugin string) string {
	return `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, ` + hostLocal4 + `}, ` + plugin
}

// inContainer records the output of a command in container a.
func inContainer(what, command string) func(*recorder) {
	return func(r *recorder) {
		out, err := r.command(nil, "", append([]string{"nsenter", "--net=" + r.Netns["a"], "--", "sh", "-c"}, command)...)
		if err != nil {
			out += err.Error()
		}
		r.note(what, strings.TrimSpace(out))
	}
}

func bandwidthKeys() []keyCase {
	limited := func(keys string) string { return afterBridge(`{"type": "bandwidth", ` + keys + `}`) }
	const four = `"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 2000000, "egressBurst": 3000000`
	// Record the queues of the host's two links, without the links' names.
	shaping := func(r *recorder) {
		out, err := r.command(nil, "", "sh", "-c", `tc qdisc show | grep -E 'tbf|ingress|htb'; for d in $(ls /sys/class/net | grep -E '^(veth|bwp)'); do tc filter show dev $d ingress | grep -o mirred; done; true`)
		if err != nil {
			out += err.Error()
		}
		out = regexp.MustCompile(`(veth|bwp)[0-9a-f]+`).ReplaceAllString(out, "$1")
		out = regexp.MustCompile(`refcnt [0-9]+ `).ReplaceAllString(out, "")     // one reference per queue
		out = regexp.MustCompile(`12498750b`).ReplaceAllString(out, "12500000b") // tc prints a time, and Fairlead sets bytes
		lines := strings.Split(out, "\n")
		slices.Sort(lines)
		r.note("shaping", strings.Join(slices.Compact(lines), "\n"))
	}
	return of("bandwidth", []keyCase{
		{key: "ingressRate, egressRate", plugins: limited(four), meanwhile: shaping},
		{key: "ingressRate, egressRate", with: "and an MTU below 1280", plugins: bridgeWith(`"mtu": 1279, `) + `, {"type": "bandwidth", ` + four + `}`, meanwhile: shaping},
		{key: "ingressRate", with: "alone", plugins: limited(`"ingressRate": 1000000, "ingressBurst": 1000000`), meanwhile: shaping},
		{key: "egressRate", with: "alone", plugins: limited(`"egressRate": 1000000, "egressBurst": 1000000`), meanwhile: shaping},
		{key: "egressRate", with: "10 Gbit/s", plugins: limited(`"egressRate": 10000000000, "egressBurst": 100000000`), meanwhile: shaping},
		{key: "ingressBurst", with: "absent", plugins: limited(`"ingressRate": 1000000`), meanwhile: shaping},
		{key: "ingressRate", with: "absent", plugins: limited(`"ingressBurst": 1000000`)},
		{key: "ingressRate", with: "absent, like the burst", plugins: limited(`"ingressRate": 0`), meanwhile: shaping},
		{key: "runtimeConfig.bandwidth", plugins: limited(four + `, "capabilities": {"bandwidth": true}`), meanwhile: shaping,
			capArgs: `{"bandwidth": {"ingressRate": 4000000, "ingressBurst": 2000000, "egressRate": 0, "egressBurst": 0}}`},
		{key: "egressBurst", with: "too large", plugins: limited(`"egressRate": 1000000, "egressBurst": 99999999999`)},
	})
}

func firewallKeys() []keyCase {
	routed := func(keys string) string {
		return `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, ` + hostLocal4 + `}, {"type": "firewall", ` + keys + `}`
	}
	drops := func(h *host) {
		h.world()
		if _, err := h.command(nil, "", "iptables", "-P", "FORWARD", "DROP"); err != nil {
			h.T.Fatal(err)
		}
	}
	rejects := func(h *host) {
		h.world()
		if _, err := h.command(nil, "", "iptables", "-A", "FORWARD", "-j", "REJECT"); err != nil {
			h.T.Fatal(err)
		}
	}
	rules := func(r *recorder) {
		out, err := r.command(nil, "", "sh", "-c", "iptables -S | grep -E 'CNI-(FORWARD|ADMIN|MINE)'; true")
		if err != nil {
			out += err.Error()
		}
		r.note("rules", out)
	}
	out := []probe{{"a", "tcp", "192.0.2.9:7"}, {"world", "tcp", "10.1.0.2:80"}}
	across := []probe{{"b", "tcp", "10.1.0.2:80"}, {"host", "tcp", "10.1.0.2:80"}}
	return of("firewall", []keyCase{
		{key: "backend", with: "iptables", plugins: routed(`"backend": "iptables"`), prepare: drops, probes: out, meanwhile: rules},
		{key: "backend", with: "absent, FORWARD drops", plugins: routed(`"ingressPolicy": "open"`), prepare: drops, probes: out, meanwhile: rules},
		{key: "backend", with: "absent, FORWARD ends with REJECT", plugins: routed(`"ingressPolicy": "open"`), prepare: rejects, probes: out, meanwhile: rules},
		{key: "backend", with: "absent, nothing drops", plugins: routed(`"ingressPolicy": "open"`), prepare: (*host).world, probes: out},
		{key: "backend", with: "unknown", plugins: routed(`"backend": "pf"`)},
		{key: "iptablesAdminChainName", plugins: routed(`"backend": "iptables", "iptablesAdminChainName": "CNI-MINE"`), prepare: drops, probes: out, meanwhile: rules},
		{key: "iptablesAdminChainName", with: "backend absent, nothing drops", plugins: routed(`"iptablesAdminChainName": "CNI-MINE"`), prepare: (*host).world, probes: out, meanwhile: rules},
		{key: "ingressPolicy", with: "same-bridge", plugins: routed(`"backend": "iptables", "ingressPolicy": "same-bridge"`), prepare: (*host).world, second: true, probes: append(across, out...)},
		{key: "ingressPolicy", with: "isolated", plugins: routed(`"backend": "iptables", "ingressPolicy": "isolated"`), prepare: (*host).world, second: true, probes: append(across, out...)},
		{key: "ingressPolicy", with: "unknown", plugins: routed(`"ingressPolicy": "closed"`)},
	})
}

func sbrKeys() []keyCase {
	normal := tablesInside()
	two := `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/24"}]],
		"routes": [{"dst": "10.8.0.0/16", "gw": "10.2.0.1"}, {"dst": "10.9.0.0/16"}]}}, `
	return of("sbr", []keyCase{
		{key: "type", with: "one address", plugins: afterBridge(`{"type": "sbr"}`), meanwhile: normal},
		{key: "type", with: "two addresses", plugins: two + `{"type": "sbr"}`, meanwhile: normal},
		{key: "table", plugins: afterBridge(`{"type": "sbr", "table": 500}`), meanwhile: normal},
		{key: "gateways", plugins: two + `{"type": "sbr", "gateways": ["10.1.0.77"]}`, meanwhile: normal},
		{key: "gateways", with: "with a default route", plugins: afterBridge(`{"type": "sbr", "gateways": ["10.1.0.77"]}`), meanwhile: normal},
		{key: "gateways", with: "two of a family", plugins: two + `{"type": "sbr", "gateways": ["10.1.0.77", "10.1.0.78"]}`},
		{key: "gateways", with: "invalid", plugins: two + `{"type": "sbr", "gateways": ["10.1.0"]}`},
		{key: "addSourceHints", plugins: two + `{"type": "sbr", "addSourceHints": true}`, meanwhile: normal},
		{key: "addSourceHints", with: "with IPv6", plugins: `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd01::/64"}]]}}, ` +
			`{"type": "sbr", "addSourceHints": true}`},
	})
}

// tablesInside shows the container's rules and routes without a route's protocol, and without IPv6's link-local routes.
func tablesInside() func(*recorder) {
	const lists = `ip rule; ip -6 rule; ip -4 route show table all; ip -6 route show table all`
	return inContainer("rules and tables", `(`+lists+`) | grep -vE 'table local|fe80|multicast' | sed 's/ proto [a-z0-9]*//'; true`)
}

func tuningKeys() []keyCase {
	const device0 = `{"type": "host-device", "device": "dev0"}, `
	link := inContainer("link", `cat /sys/class/net/eth0/tx_queue_len /sys/class/net/eth0/flags 2>/dev/null; ip -o link show eth0 | sed 's/.*mtu/mtu/; s/ qdisc.*qlen/ qlen/; s/link-netns.*//'`)
	sysctls := inContainer("sysctls", `sysctl -n net.core.somaxconn net.ipv4.conf.eth0.arp_filter net.ipv4.conf.all.arp_ignore`)
	return of("tuning", []keyCase{
		{key: "sysctl", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.all.arp_ignore": "1"}}`), meanwhile: sysctls},
		{key: "sysctl", with: "with IFNAME", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}`), meanwhile: sysctls},
		{key: "sysctl", with: "with slashes", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net/ipv4/conf/IFNAME/arp_filter": "1"}}`), meanwhile: sysctls},
		{key: "sysctl", with: "in another form", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.ipv4.ip_local_reserved_ports": "30000,30001"}}`), meanwhile: inContainer("ports", `cat /proc/sys/net/ipv4/ip_local_reserved_ports`)},
		{key: "sysctl", with: "in hexadecimal", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.core.somaxconn": "0x1f4"}}`), meanwhile: sysctls},
		{key: "sysctl", with: "that can only be written", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.ipv4.route.flush": "1"}}`)},
		{key: "sysctl", with: "outside net", plugins: afterBridge(`{"type": "tuning", "sysctl": {"kernel.hostname": "x"}}`)},
		{key: "sysctl", with: "unknown", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.nosuch": "x"}}`)},
		{key: "mac", plugins: device0 + `{"type": "tuning", "mac": "02:00:00:00:00:07"}`, prepare: device, meanwhile: link},
		{key: "MAC in CNI_ARGS", plugins: device0 + `{"type": "tuning"}`, prepare: device, cniArgs: "MAC=02:00:00:00:00:07", meanwhile: link},
		{key: "runtimeConfig.mac", plugins: device0 + `{"type": "tuning", "capabilities": {"mac": true}}`, prepare: device, capArgs: `{"mac": "02:00:00:00:00:07"}`, meanwhile: link},
		{key: "args.cni.mac", plugins: device0 + `{"type": "tuning", "args": {"cni": {"mac": "02:00:00:00:00:07"}}}`, prepare: device, meanwhile: link},
		{key: "mtu", plugins: device0 + `{"type": "tuning", "mtu": 1400}`, prepare: device, meanwhile: link},
		{key: "args.cni.mtu", plugins: device0 + `{"type": "tuning", "mtu": 1300, "args": {"cni": {"mtu": 1400}}}`, prepare: device, meanwhile: link},
		{key: "promisc", plugins: device0 + `{"type": "tuning", "promisc": true}`, prepare: device, meanwhile: link},
		{key: "args.cni.promisc", plugins: device0 + `{"type": "tuning", "args": {"cni": {"promisc": true}}}`, prepare: device, meanwhile: link},
		{key: "allmulti", plugins: device0 + `{"type": "tuning", "allmulti": true}`, prepare: device, meanwhile: link},
		{key: "args.cni.allmulti", plugins: device0 + `{"type": "tuning", "args": {"cni": {"allmulti": true}}}`, prepare: device, meanwhile: link},
		{key: "txQLen", plugins: device0 + `{"type": "tuning", "txQLen": 500}`, prepare: device, meanwhile: link},
		{key: "args.cni.txQLen", plugins: device0 + `{"type": "tuning", "args": {"cni": {"txQLen": 500}}}`, prepare: device, meanwhile: link},
		{key: "args.cni.sysctl", plugins: afterBridge(`{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "args": {"cni": {"sysctl": {"net.ipv4.conf.all.arp_ignore": "1"}}}}`), meanwhile: sysctls},
		{key: "dataDir", plugins: device0 + `{"type": "tuning", "mtu": 1400, "dataDir": "$DIR/tuning"}`, prepare: device, meanwhile: link},
	})
}

func vrfKeys() []keyCase {
	with := func(keys string) string {
		return `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, ` + hostLocal4 + `}, {"type": "vrf", ` + keys + `}`
	}
	routers := inContainer("routers and routes", `ip -br link show type vrf | cut -d' ' -f1; ip -o -d link show type vrf | grep -o 'vrf table [0-9]*'; ip -4 route show table all | grep -v 'table local' | sed 's/ proto [a-z0-9]*//'; true`)
	list := []keyCase{
		{key: "vrfname", plugins: with(`"vrfname": "blue"`), meanwhile: routers},
		{key: "vrfname", with: "absent", plugins: with(`"table": 5`)},
		{key: "table", plugins: with(`"vrfname": "blue", "table": 500`), meanwhile: routers},
		{key: "table", with: "of another VRF", plugins: with(`"vrfname": "blue", "table": 500`), before: func(r *recorder) {
			r.ip("a", "link add red type vrf table 500", "link set red up")
		}, meanwhile: routers},
	}
	for i := range list {
		list[i].needs = "vrf"
	}
	return of("vrf", list)
}
