package compat

import "strings"

// portmapWith returns a list of portmap with keys and a bridge that does not masquerade.
func portmapWith(backend, keys string) string {
	if backend != "" {
		keys = `"backend": "` + backend + `", ` + keys
	}
	return `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, ` + hostLocal4 + `},
		{"type": "portmap", ` + keys + `"capabilities": {"portMappings": true}}`
}

func portmapKeys() []keyCase {
	const web = `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`
	everywhere := []probe{{"world", "tcp", "192.0.2.1:8080"}, {"host", "tcp", "192.0.2.1:8080"}, {"host", "tcp", "127.0.0.1:8080"}, {"a", "tcp", "192.0.2.1:8080"}}
	two := append([]probe{{"world", "tcp", "192.0.2.99:8080"}}, everywhere...)
	another := func(h *host) { h.world(); h.ip("host", "addr add 192.0.2.99/24 dev up0") }
	var list []keyCase
	for _, backend := range []string{"", "nftables", "iptables"} {
		list = append(list, keyCase{key: "backend", with: strings.TrimPrefix(backend+" ", " ") + "chosen", plugins: portmapWith(backend, ""), capArgs: web, prepare: (*host).world, probes: everywhere})
	}
	for _, backend := range []string{"nftables", "iptables"} {
		in := "(" + backend + ")"
		list = append(list, []keyCase{
			{key: "snat", with: "false " + in, plugins: portmapWith(backend, `"snat": false, `), prepare: (*host).world, capArgs: web, probes: everywhere},
			{key: "masqAll", with: in, plugins: portmapWith(backend, `"masqAll": true, `), prepare: (*host).world, capArgs: web, probes: everywhere},
			{key: "hostIP", with: in, plugins: portmapWith(backend, ""), prepare: another, probes: two,
				capArgs: `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.99"}]}`},
			{key: "protocol", with: "absent " + in, plugins: portmapWith(backend, ""), capArgs: `{"portMappings": [{"hostPort": 8080, "containerPort": 80}]}`},
			{key: "hostIP", with: "0.0.0.0 " + in, plugins: portmapWith(backend, ""), prepare: another, probes: two,
				capArgs: `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "0.0.0.0"}]}`},
			{key: "protocol", with: "udp " + in, plugins: portmapWith(backend, ""), prepare: (*host).world,
				capArgs: `{"portMappings": [{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]}`,
				probes:  []probe{{"world", "udp", "192.0.2.1:5353"}, {"host", "udp", "127.0.0.1:5353"}}},
			{key: "protocol", with: "sctp " + in, plugins: portmapWith(backend, ""), prepare: (*host).world,
				capArgs: `{"portMappings": [{"hostPort": 3868, "containerPort": 3868, "protocol": "sctp"}]}`},
			{key: "protocol", with: "unknown " + in, plugins: portmapWith(backend, ""),
				capArgs: `{"portMappings": [{"hostPort": 5353, "containerPort": 53, "protocol": "icmp"}]}`},
			{key: "hostPort", with: "taken by another container " + in, plugins: portmapWith(backend, ""), second: true, capArgs: web},
			{key: "portMappings", with: "none " + in, plugins: portmapWith(backend, "")},
			{key: "portMappings", with: "port 0 " + in, plugins: portmapWith(backend, ""), capArgs: `{"portMappings": [{"hostPort": 0, "containerPort": 80, "protocol": "tcp"}]}`},
		}...)
	}
	marked := func(r *recorder) { r.note("mark", r.marks()) }
	list = append(list, []keyCase{
		{key: "markMasqBit", plugins: portmapWith("iptables", `"markMasqBit": 5, `), capArgs: web, prepare: (*host).world, probes: everywhere, meanwhile: marked},
		{key: "externalSetMarkChain", plugins: portmapWith("", `"externalSetMarkChain": "KUBE-MARK-MASQ", `), capArgs: web, prepare: kubeMarks, probes: everywhere, meanwhile: marked},
		{key: "conditionsV4", with: "of iptables", plugins: portmapWith("iptables", `"conditionsV4": ["!", "-s", "192.0.2.0/24"], `), capArgs: web, prepare: (*host).world, probes: everywhere},
		{key: "conditionsV4", with: "of nftables", plugins: portmapWith("nftables", `"conditionsV4": ["ip", "saddr", "192.0.2.0/24"], `), capArgs: web, prepare: (*host).world, probes: everywhere[:2]},
		{key: "conditionsV6", with: "of iptables", plugins: portmapWith("iptables", `"conditionsV6": ["-s", "2001:db8::/64"], `), capArgs: web, prepare: (*host).world, probes: everywhere},
	}...)
	return of("portmap", list)
}

// marks returns the packet mark by which the ruleset masquerades.
func (r *recorder) marks() string {
	for _, mark := range []string{"0x20/0x20", "0x4000/0x4000", "0x2000/0x2000"} {
		out, err := r.command(nil, "", "iptables-save", "-t", "nat")
		if err != nil {
			r.T.Fatal(err)
		}
		if strings.Contains(out, "--mark "+mark) {
			return mark
		}
	}
	return "none"
}

// kubeMarks creates kube-proxy's chain that marks packets for masquerading.
func kubeMarks(h *host) {
	h.world()
	for _, line := range []string{
		"-N KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
		"-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE",
	} {
		if _, err := h.command(nil, "", append([]string{"iptables", "-w", "-t", "nat"}, strings.Fields(line)...)...); err != nil {
			h.T.Fatal(err)
		}
	}
}
