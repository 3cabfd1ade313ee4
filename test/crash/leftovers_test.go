package crash

import (
	"regexp"
	"strings"
	"testing"
)

// sharedLines returns patterns of the lines by which a snapshot after a normal ADD and DEL may differ from the snapshot
// before the first ADD. They show objects that belong to all attachments, which no DEL removes, and settings that the
// kernel changes with them. Every other line is a leftover.
func sharedLines() []string {
	const bridge = `(cni\d|minicni0)(\.\d+)?`
	return []string{
		// A bridge without other ports, its gateway's VLAN, and their addresses. PROMISC is promiscMode.
		`\+ \d+: ` + bridge + `(@\w+)?: <BROADCAST,MULTICAST,(PROMISC,)?UP> .* promiscuity [01]  allmulti 0 .* (bridge|veth) .*`,
		`\+ \d+: ` + bridge + ` +inet6? .*`,
		`\+ (unicast|local|broadcast|anycast) \S+ dev ` + bridge + ` .*`,
		`\+ \S+ dev ` + bridge + ` proto kernel .*`,
		`\+ qdisc noqueue 0: dev ` + bridge + ` root refcnt 2 `,
		`\+ /proc/sys/net/ipv[46]/conf/` + bridge + `/.*`,
		// The port that connects a gateway's VLAN. An attachment's port would have a link with another peer.
		`\+ \d+: veth[0-9a-f]+@` + bridge + `: <BROADCAST,MULTICAST,UP> .* master ` + bridge + ` .* promiscuity 1  allmulti 1 .*`,
		`\+ qdisc noqueue 0: dev veth[0-9a-f]+ root refcnt 2 `,
		`\+ /proc/sys/net/ipv[46]/conf/veth[0-9a-f]+/.*`,
		`\+ 1000:	from all lookup \[l3mdev-table\]( proto kernel)?`, // the kernel's, which stays after the last VRF

		// The host forwards packets. The kernel changes other settings with it.
		`[-+] /proc/sys/net/ipv4/ip_forward = [01]`,
		`[-+] /proc/sys/net/ipv[46]/conf/\w+/forwarding = [01]`,
		`[-+] /proc/sys/net/ipv4/conf/all/accept_redirects = [01]`,
		`[-+] /proc/sys/net/ipv4/conf/host0/route_localnet = [01]`, // of the link that outlives a chained plugin

		// Tables, base chains, and rules that belong to no attachment. A set's elements match no pattern.
		`\+ table (inet|bridge) fairlead {`, `\+ table ip6? (nat|filter|mangle) {`,
		`\+ \t(set|map) (hostports-(one|any|masqall)[46]|macspoofchk(-ports)?) {`, `\+ \t\ttype [\w. :]+`,
		`\+ \tchain (prerouting|output|postrouting|forward|loopback|hostports(-masquerade)?|ingress-(from|to)) {`,
		`\+ \tchain (PREROUTING|OUTPUT|POSTROUTING|FORWARD|CNI-FORWARD|CNI-ADMIN|FL-HOSTPORT|FL-LOOPBACK|FL-SETMARK-13) {`,
		`\+ \t\ttype (nat|filter) hook \w+ priority [\w +-]+; policy accept;`,
		`\+ \t\t.* comment "fairlead #[0-9a-f]{12}"`,
		`\+ \t\t(fib daddr type local)? counter packets 0 bytes 0 jump (CNI-FORWARD|CNI-ADMIN|FL-HOSTPORT)`,
		`\+ \t\tfib daddr type local counter packets 0 bytes 0 jump FL-HOSTPORT`,
		`\+ \t\tiifname != "lo" counter packets \d+ bytes \d+ jump FL-LOOPBACK`, `\+ \t\tip [sd]addr 127\.0\.0\.0/8 counter packets 0 bytes 0 drop`,
		`\+ \t\tcounter packets 0 bytes 0 meta mark set mark or 0x2000`,
		`\+ \t\tmeta mark & 0x00002000 == 0x00002000 counter packets 0 bytes 0 (masquerade)?`,
		`\+ \t?}`, `\+ `,

		// The loopback device is down again. The kernel keeps its address.
		`[-+] 1: lo: <LOOPBACK> mtu 65536 qdisc (noop|noqueue) .*`, `\+ 1: lo +inet6? (127\.0\.0\.1/8|::1/128) .*`,
		`\+ local (127\.0\.0\.0/8|127\.0\.0\.1|::1) dev lo .*`, `\+ qdisc noqueue 0: dev lo root refcnt 2 `,

		// The switch, with its own port, and the network's tunnel.
		`\+ \d+: (ovs-netdev|ovs0): <BROADCAST,MULTICAST,PROMISC> .* promiscuity 1  allmulti 0 .*`,
		`\+ /proc/sys/net/ipv[46]/conf/(ovs-netdev|ovs0)/.*`,
		`\+ (name +: ovs0|type +: internal|(options|external_ids) +: {}|ports +: \[[0-9a-f-]+\])`,
		`- ports +: \[[0-9a-f-]+, [0-9a-f-]+\]`, `\+ ports +: \[[0-9a-f-]+, [0-9a-f-]+, [0-9a-f-]+\]`,
		`\+ (name +: vx42-[0-9a-f]{10}|type +: vxlan|options +: {key="42", remote_ip=flow}|external_ids +: {fairlead-network=pci})`,

		// The index of owners is marked as complete, and the list of recently released addresses exists.
		`\+ /lib/fairlead/owners/(default|whereabouts|crash\d+)/=n: ""`,
		`\+ /lib/fairlead/(default|crash\d+)\.cooling: "\.\.\."`,
	}
}

// unexpected returns the lines of a difference that no pattern of sharedLines matches.
func unexpected(difference string) string {
	shared := regexp.MustCompile(`^(` + strings.Join(sharedLines(), `|`) + `)$`)
	var b strings.Builder
	for line := range strings.Lines(difference) {
		if !shared.MatchString(strings.TrimSuffix(line, "\n")) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestUnexpectedLeftovers checks that leftovers of an attachment do not match the patterns of shared objects.
func TestUnexpectedLeftovers(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"- 6: eth0@if7: <BROADCAST,MULTICAST,UP> mtu 1500 promiscuity 0  allmulti 0 \n",
		"+ 6: eth0@if7: <BROADCAST,MULTICAST,ALLMULTI,UP> mtu 1500 promiscuity 0  allmulti 1 \n",
		"+ 4: cni0: <BROADCAST,MULTICAST,ALLMULTI,UP> mtu 1500 promiscuity 0  allmulti 1 minmtu 68 \\    bridge forward_delay 1500 \n",
		"+ 5: veth1234@if2: <BROADCAST,MULTICAST,UP> mtu 1500 promiscuity 0  allmulti 0 \n",
		"+ \tset masquerade-n {\n", "+ \t\telements = { 10.1.0.2 }\n", "+ \t\tip saddr 10.1.0.0/24 masquerade comment \"fairlead n #20b8244bf0f4\"\n",
		"+ /proc/sys/net/core/somaxconn = 77\n", "+ /ipam/n/10.1.0.2: \"a\"\n", "+ default via 10.1.0.1 dev eth0 table 100\n",
	} {
		if unexpected(line) != line {
			t.Errorf("counts as a shared object: %s", line)
		}
	}
}
