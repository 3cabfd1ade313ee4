package compat

import (
	"regexp"
	"slices"
	"strings"
)

const vlanFiltering = "bridge VLAN filtering"

const hostLocal4 = `"ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "subnet": "10.1.0.0/24"}`

// bridgeWith returns a bridge configuration with keys, IPv4 only.
func bridgeWith(keys string) string {
	return `{"type": "bridge", "bridge": "cni0", ` + keys + hostLocal4 + `}`
}

func bridgeKeys() []keyCase {
	const dual, gw = dualStack + `}`, `"isDefaultGateway": true, `
	out := []probe{{"a", "tcp", "192.0.2.9:7"}}
	neighbours := []probe{{"b", "tcp", "10.1.0.2:80"}, {"host", "tcp", "10.1.0.2:80"}}
	occupied := func(h *host) {
		h.ip("host", "link add cni0 address 02:00:00:00:00:05 type bridge", "addr add 10.1.0.254/24 dev cni0", "link set cni0 up")
	}
	list := []keyCase{
		{key: "bridge", plugins: `{"type": "bridge", "bridge": "br7", ` + hostLocal4 + `}`, second: true, probes: neighbours[:1]},
		{key: "bridge", with: "absent", plugins: `{"type": "bridge", ` + hostLocal4 + `}`},
		{key: "bridge", with: "already exists", plugins: bridgeWith(""), prepare: occupied},
		{key: "isGateway", plugins: bridgeWith(`"isGateway": true, `), second: true, probes: neighbours},
		{key: "isDefaultGateway", with: "two families", plugins: `{"type": "bridge", "bridge": "cni0", ` + gw + dual + `}`, prepare: (*host).world, probes: append(out, probe{"a", "tcp", "[2001:db8::9]:7"})},
		{key: "isDefaultGateway", with: "IPv4 only", plugins: bridgeWith(gw), prepare: (*host).world, probes: out},
		{key: "forceAddress", with: "false", plugins: bridgeWith(`"isGateway": true, "forceAddress": false, `), prepare: occupied},
		{key: "forceAddress", with: "true", plugins: bridgeWith(`"isGateway": true, "forceAddress": true, `), prepare: occupied},
		{key: "ipMasq", with: "false", plugins: bridgeWith(gw + `"ipMasq": false, `), prepare: (*host).world, probes: out},
		{key: "ipMasq", with: "true", plugins: bridgeWith(gw + `"ipMasq": true, `), prepare: (*host).world, second: true, probes: append(out, neighbours...)},
		{key: "ipMasqBackend", with: "iptables", plugins: bridgeWith(gw + `"ipMasq": true, "ipMasqBackend": "iptables", `), prepare: (*host).world, second: true, probes: append(out, neighbours...)},
		{key: "ipMasqBackend", with: "nftables", plugins: bridgeWith(gw + `"ipMasq": true, "ipMasqBackend": "nftables", `), prepare: (*host).world, probes: out},
		{key: "ipMasqBackend", with: "unknown", plugins: bridgeWith(gw + `"ipMasq": true, "ipMasqBackend": "pf", `)},
		{key: "mtu", plugins: bridgeWith(`"mtu": 1400, `), second: true},
		{key: "mtu", with: "below 1280", plugins: bridgeWith(`"isGateway": true, "mtu": 1279, `), second: true, probes: neighbours},
		{key: "mtu", with: "below 1280, with IPv6", plugins: `{"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1279, ` + dual + `}`},
		{key: "mtu", with: "1280, with IPv6", plugins: `{"type": "bridge", "bridge": "cni0", "isGateway": true, "mtu": 1280, ` + dual + `}`},
		{key: "mtu", with: "68", plugins: bridgeWith(`"mtu": 68, `)},
		{key: "mtu", with: "67, without ipam", plugins: `{"type": "bridge", "bridge": "cni0", "mtu": 67}`},
		{key: "hairpinMode", plugins: bridgeWith(`"hairpinMode": true, `)},
		{key: "promiscMode", plugins: bridgeWith(`"promiscMode": true, `)},
		{key: "promiscMode", with: "and hairpinMode", plugins: bridgeWith(`"promiscMode": true, "hairpinMode": true, `)},
		{key: "macspoofchk", plugins: bridgeWith(`"isGateway": true, "macspoofchk": true, `), probes: neighbours[1:], needs: "nftables for bridges", meanwhile: func(r *recorder) {
			r.serve("a", "tcp", ":81")
			r.note("with its own address", r.dial("host", "tcp", "10.1.0.2:81"))
			r.ip("a", "link set eth0 address 02:00:00:00:00:66")
		}},
		{key: "portIsolation", plugins: bridgeWith(`"isGateway": true, "portIsolation": true, `), second: true, probes: neighbours},
		{key: "enabledad", with: "false", plugins: `{"type": "bridge", "bridge": "cni0", "enabledad": false, ` + dual + `}`},
		{key: "enabledad", with: "true", plugins: `{"type": "bridge", "bridge": "cni0", "enabledad": true, ` + dual + `}`},
		{key: "disableContainerInterface", plugins: `{"type": "bridge", "bridge": "cni0", "disableContainerInterface": true}`},
		{key: "disableContainerInterface", with: "and ipam", plugins: bridgeWith(`"disableContainerInterface": true, `)},
		{key: "ipam", with: "absent", plugins: `{"type": "bridge", "bridge": "cni0"}`},
		{key: "dns", plugins: bridgeWith(`"dns": {"nameservers": ["192.0.2.53"], "domain": "d", "search": ["s"], "options": ["o"]}, `)},
		{key: "runtimeConfig.mac", plugins: bridgeWith(`"capabilities": {"mac": true}, `), capArgs: `{"mac": "02:00:00:00:00:aa"}`},
		{key: "args.cni.mac", plugins: bridgeWith(`"args": {"cni": {"mac": "02:00:00:00:00:ab"}}, `)},
		{key: "MAC in CNI_ARGS", plugins: bridgeWith(""), cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
		{key: "mac", with: "from all three", plugins: bridgeWith(`"capabilities": {"mac": true}, "args": {"cni": {"mac": "02:00:00:00:00:ab"}}, `), capArgs: `{"mac": "02:00:00:00:00:aa"}`, cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
		{key: "mac", with: "by args.cni and CNI_ARGS", plugins: bridgeWith(`"args": {"cni": {"mac": "02:00:00:00:00:ab"}}, `), cniArgs: "IgnoreUnknown=1;MAC=02:00:00:00:00:ac"},
		{key: "vlan", plugins: bridgeWith(`"vlan": 100, `), second: true, probes: neighbours[:1], needs: vlanFiltering},
		{key: "vlan", with: "with isGateway", plugins: bridgeWith(`"vlan": 100, "isGateway": true, `), probes: neighbours[1:], needs: vlanFiltering},
		{key: "preserveDefaultVlan", with: "absent", plugins: bridgeWith(`"vlan": 100, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "preserveDefaultVlan", with: "true", plugins: bridgeWith(`"vlan": 100, "preserveDefaultVlan": true, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "preserveDefaultVlan", with: "false", plugins: bridgeWith(`"vlan": 100, "preserveDefaultVlan": false, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "preserveDefaultVlan", with: "false, with VLAN 1", plugins: bridgeWith(`"vlan": 1, "preserveDefaultVlan": false, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "preserveDefaultVlan", with: "false, with a trunk", plugins: bridgeWith(`"vlanTrunk": [{"id": 5}], "preserveDefaultVlan": false, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "preserveDefaultVlan", with: "false, with a trunk and vlan", plugins: bridgeWith(`"vlan": 100, "vlanTrunk": [{"id": 5}], "preserveDefaultVlan": false, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", plugins: bridgeWith(`"vlanTrunk": [{"id": 5}, {"minID": 10, "maxID": 12}], `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", with: "and vlan", plugins: bridgeWith(`"vlan": 100, "vlanTrunk": [{"id": 5}], "preserveDefaultVlan": true, `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", with: "and vlan, with isGateway", plugins: bridgeWith(`"vlan": 100, "vlanTrunk": [{"id": 5}], "isGateway": true, "preserveDefaultVlan": true, `), probes: neighbours[1:], needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", with: "with VLAN 1", plugins: bridgeWith(`"vlanTrunk": [{"id": 1}, {"id": 5}], `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", with: "with the VLAN of vlan", plugins: bridgeWith(`"vlan": 100, "vlanTrunk": [{"minID": 99, "maxID": 101}], `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", with: "with VLAN 1 in a range", plugins: bridgeWith(`"vlanTrunk": [{"minID": 1, "maxID": 3}], `), needs: vlanFiltering, meanwhile: portVLANs},
		{key: "vlanTrunk", with: "empty", plugins: bridgeWith(`"vlanTrunk": [], `), needs: vlanFiltering, meanwhile: portVLANs},
	}
	list = append(list, dnsOverIPAM(`{"type": "bridge", "bridge": "cni0", `, nil)...)
	return append(of("bridge", list), routeKeys("bridge", `{"type": "bridge", "bridge": "cni0", "isGateway": true, `)...)
}

// portVLANs records the VLANs of the bridge and its ports.
func portVLANs(r *recorder) {
	out, err := r.command(nil, "", "/sbin/bridge", "vlan", "show")
	if err != nil {
		out += err.Error()
	}
	out = regexp.MustCompile(` +`).ReplaceAllString(out, " ") // the columns are as wide as the names
	ports := strings.Split(regexp.MustCompile(`(?m)^veth[0-9a-f]+`).ReplaceAllString(out, "\x00veth"), "\x00")
	slices.Sort(ports[1:])
	r.note("VLANs", strings.Join(ports, ""))
}

func of(plugin string, list []keyCase) []keyCase {
	for i := range list {
		list[i].plugin = plugin
	}
	return list
}

// routeKeys returns the cases of routes set by a plugin that creates interfaces.
func routeKeys(plugin, begin string) []keyCase {
	var list []keyCase
	for _, r := range []struct{ key, route string }{
		{"dst", `{"dst": "10.9.0.0/16"}`},
		{"gw", `{"dst": "10.9.0.0/16", "gw": "10.1.0.1"}`},
		{"mtu", `{"dst": "10.9.0.0/16", "mtu": 1300}`},
		{"advmss", `{"dst": "10.9.0.0/16", "advmss": 1200}`},
		{"priority", `{"dst": "10.9.0.0/16", "priority": 77}`},
		{"table", `{"dst": "10.9.0.0/16", "table": 100}`},
		{"scope", `{"dst": "10.9.0.0/16", "scope": 0}`},
		{"scope link", `{"dst": "10.9.0.0/16", "scope": 253}`},
		{"dst of IPv6", `{"dst": "fd09::/64"}`},
		{"table of IPv6", `{"dst": "fd09::/64", "table": 100, "priority": 5, "mtu": 1400}`},
	} {
		list = append(list, keyCase{key: "routes: " + r.key, plugins: begin + dualStack + `, "routes": [` + r.route + `]}}`})
	}
	return of(plugin, list)
}
