package compat

import (
	"regexp"
	"sync/atomic"
)

const (
	outcome  = `^(error|success)$`
	anything = ``
	idle     = "DEL has to succeed when there is nothing left to remove, says the specification"
)

// differs returns a difference that transcripts show in the given cases, steps and lines.
func differs(cases, steps, lines string, d difference) difference {
	d.cases, d.steps, d.lines, d.seen = regexp.MustCompile(cases), regexp.MustCompile(steps), regexp.MustCompile(lines), &atomic.Bool{}
	return d
}

// differences returns all deliberate differences.
func differences() []difference {
	return append(shownDifferences(), []difference{
		{what: "hardware addresses of containers", theirs: "random", ours: "derived from network, container and interface",
			why: "a container that is attached again is the same to its neighbours, and nothing has to be read back"},
		{what: "names of the host's ends", theirs: "`veth` and random digits", ours: "`veth` and digits of a hash of network, container and interface",
			why: "DEL and GC find them without any memory"},
		{what: "IPAM", theirs: "a process", ours: "a call, when `ipam.type` resolves to our own program; else a process",
			why: "a start costs more than the work"},
		{what: "rules for masquerade and host ports", theirs: "`ip cni_plugins_masquerade`, `ip cni_hostport`, or chains of iptables for each container", ours: "sets and maps in `inet fairlead`; with iptables, chains whose names begin with `FL-`",
			why: "a packet's cost and an attach's stay the same however many containers there are"},
		{what: "IPv6 addresses", theirs: "wait for duplicate address detection: ADD takes 1 to 2 seconds", ours: "set without it, unless `enabledad` asks for it", why: "IPAM owns them"},
		{what: "a failed ADD", theirs: "leaves what it made, for DEL", ours: "is undone, and an address that it reserved is freed", why: "not every runtime calls DEL after a failed ADD"},
		{what: "routes of ours", theirs: "protocol `boot`", ours: "protocol 102", why: "they can be told from others"},
		{what: "link-local addresses of a bridge's ports", theirs: "there", ours: "none", why: "a port is no endpoint; it would only answer what the bridge should"},
	}...)
}

func shownDifferences() []difference {
	return []difference{
		differs(anything, `namespace`, `^sysctl net/ipv6/conf/eth0/accept_ra:`, difference{
			what: "router advertisements in the container", theirs: "accepted", ours: "`accept_ra=0` when IPAM gives IPv6 addresses",
			why: "a neighbour on the network could otherwise give the container a default route (CVE-2020-10749)"}),
		differs(`^loopback 0\.`, `^(add|added)`, `"(version|ip4|ip6|ip)":|"dns": {}|^ +},?$`, difference{
			what: "loopback's addresses in results before 1.0.0", theirs: "none at 0.1.0 and 0.2.0, later with `\"version\": \"\"`", ours: "there, with version 4 and 6",
			why: "the specification allows no other version"}),
		differs(`^host-device [0-9.]+$`, `^del`, outcome, difference{
			what: "a second DEL of host-device", theirs: "an error: the interface is not in the container", ours: "success", why: idle}),
		differs(`^host-device [0-9.]+$`, `^ended: result cache`, anything, difference{
			what: "DEL of host-device when its container ended", theirs: "an error if `CNI_NETNS` is given, and the runtime keeps the attachment in its cache", ours: "success", why: idle}),
		differs(`^(host-device|tuning)`, `^(collected|deleted): namespace host`, `^link dev0`, difference{
			what: "a device that host-device gives back", theirs: "down", ours: "up, if it was up before ADD", why: "the host gets its device back as it was"}),
		differs(`^bridge/(bridge|mtu|vlan)$`, `^check`, outcome, difference{
			what: "hardware address of a bridge that is no gateway", theirs: "the lowest of its ports': it may change as containers come and go, and then CHECK fails", ours: "fixed when the bridge is made",
			why: "CHECK of an attachment must not depend on others", chance: true}),
		differs(`^(bridge|ptp)/routes: (mtu|advmss|table of IPv6)$`, `^added: namespace a`, `^route (10\.9|fd09)`, difference{
			what: "`mtu` and `advmss` of a route", theirs: "in the result, but not set", ours: "set", why: "the specification 1.1.0 says what they mean"}),
		differs(`^(bridge|ptp)/routes: table`, `^check`, outcome, difference{
			what: "CHECK of a route in a table of its own", theirs: "an error: it looks in the main table", ours: "success", why: "the route is there"}),
		differs(`^bridge/(ipam absent|disableContainerInterface)$`, `^check`, outcome, difference{
			what: "CHECK of a bridge without `ipam`", theirs: "an error: no plugin name provided", ours: "success", why: "ADD accepts the configuration"}),
		differs(`(firewall/(ingressPolicy unknown$)|vrf/vrfname absent|dummy/ipam absent|bandwidth/(egressBurst too large|ingressRate absent$|ingressBurst absent)|portMappings port 0|device not there|none of the four|pciBusID not there|deviceID not there|bcqueuelen negative)|^vlan/(master (absent|not there)|vlanId (5000|negative)|mtu (negative|more)|linkInContainer no)|^ipvlan/(master absent, no default route|prevResult has no interface)`, `^(del a|deleted after)`, anything, difference{
			what: "DEL with a configuration that ADD refuses", theirs: "an error, and what ADD made stays", ours: "success: everything is removed by name and owner",
			why: "a configuration that was spoiled while containers ran must not hold them"}),
		differs(`^(bridge/ipMasqBackend unknown|vlan/master down)$`, `^deleted after a failed ADD: addresses`, `last_reserved`, difference{
			what: "when a configuration is found bad", theirs: "often after an address was given", ours: "before anything is changed", why: "there is nothing to undo"}),
		differs(`^ipvlan/master absent(, default route of IPv6)?$`, `^check`, outcome, difference{
			what: "CHECK of ipvlan without `master`", theirs: "an error: it looks for an interface without a name", ours: "compares with the interface that it was put on", why: "ADD accepts the configuration"}),
		differs(`^ipvlan/mtu (negative|more)`, `^add`, anything, difference{
			what: "`mtu` of ipvlan beyond the master's, or negative", theirs: "accepted", ours: "an error, as with macvlan and vlan", why: "a key means the same in all three"}),
		differs(`^(ipvlan|vlan)/ipam absent$`, `^add`, anything, difference{
			what: "ipvlan and vlan without `ipam`", theirs: "an error, and the interface stays", ours: "layer 2 only, as with macvlan", why: "a key means the same in all three"}),
		differs(`^(macvlan|tap)/args.cni.mac$`, anything, `"mac":|^link eth0`, difference{
			what: "`args.cni.mac` of macvlan and tap", theirs: "no effect", ours: "as with bridge", why: "one precedence for every plugin that makes hardware addresses"}),
		differs(`^tap/mac, mtu and owner`, anything, `"mac":|^link eth0`, difference{
			what: "`mac` and `mtu` of a tap that has both `owner` and `group`", theirs: "no effect", ours: "as asked for", why: "a key means the same beside others"}),
		differs(`^tap/(mtu negative|bridge not there)$`, `^deleted after a failed ADD: container`, anything, difference{
			what: "a tap that could not be completed", theirs: "stays, under a name that no DEL knows, or until DEL", ours: "is undone", why: "as any failed ADD"}),
		differs(`^portmap/protocol absent`, `^add`, anything, difference{
			what: "a port mapping without `protocol`", theirs: "an error of the backend's command", ours: "tcp", why: "there is one thing that it can mean"}),
		differs(`^bandwidth/ingressBurst absent`, `^(add|added|check|shaping|deleted after|del)`, anything, difference{
			what: "a rate without a burst", theirs: "an error", ours: "a burst that fits the rate and the MTU", why: "the rate is what a person knows"}),
		differs(`^firewall/backend unknown`, `^(add|added|check|del|deleted)`, anything, difference{
			what: "an unknown `backend` of firewall", theirs: "taken for iptables", ours: "an error that names those there are", why: "a typing error would go unnoticed"}),
		differs(`^firewall/`, `^rules`, `--ctstate DNAT`, difference{
			what: "host ports of a container on a host that forwards only what it knows", theirs: "not forwarded", ours: "forwarded", why: "who asks for a host port wants it to answer"}),
		differs(`^(sbr/type|vrf/(vrfname|table)$|(sbr|vrf) [0-9.]+$)`, `^check`, outcome, difference{
			what: "CHECK of the plugins before sbr and vrf", theirs: "an error: they miss the routes that those moved", ours: "success: a later plugin may move a route", why: "nothing is wrong"}),
		differs(`^portmap/masqAll \(nftables\)`, `^from (world|host)`, anything, difference{
			what: "`masqAll` with nftables", theirs: "no effect", ours: "as with iptables: every client is masqueraded", why: "a key means the same with both backends"}),
		differs(`^(bridge|ptp)/routes: scope of the link$`, `^add`, anything, difference{
			what: "a route with the scope of the link and no gateway", theirs: "an error: the address's gateway is put in, and does not fit the scope", ours: "a route without a gateway",
			why: "a DHCP server can give one (RFC 3442)"}),
		differs(`^dhcp 0\.[12]\.0$`, `^added: namespace a`, `^route default`, difference{
			what: "dhcp's `priority` at 0.1.0 and 0.2.0", theirs: "lost: a result of these versions has no such key", ours: "set", why: "the address plugin runs inside ours, and nothing is lost between them"}),
		differs(`^dhcp/daemonSocketPath nobody answers$`, `^(del a|deleted after)`, anything, difference{
			what: "DEL when no DHCP daemon answers", theirs: "an error, and the interface stays", ours: "success: a daemon that is started later finds the interface gone, and forgets",
			why: "a pod must not hang because a daemon is down"}),
		differs(`^dhcp/request name servers$`, `^add`, anything, difference{
			what: "name servers that `request` asks for", theirs: "not in the result", ours: "in the result's `dns`", why: "to ask for them has no other use"}),
		differs(`^dhcp/routes$`, `^add`, anything, difference{
			what: "`routes` beside `\"type\": \"dhcp\"`", theirs: "no effect", ours: "added, where the lease's subnet has the gateway", why: "configurations have them, as the specification's example had"}),
		differs(`^dhcp/request static routes$`, `^add`, anything, difference{
			what: "static routes to a host (option 33)", theirs: "taken for one to the network of its class: ADD fails", ours: "a route to the host", why: "RFC 2132, 5.8"}),
		differs(`^requests`, `^(ADD|CHECK|DEL|GC|STATUS)`, `^  "capabilities": \{|^    "(ips|portMappings)": (true|false)|^  },?$`, difference{
			what: "`capabilities` in what a plugin is given", theirs: "passed on", ours: "removed", why: "section 3 of the specification: a request must not have the key"}),
		differs(`^requests 1\.1\.0`, `^GC`, `^  "cni.dev/`, difference{
			what: "GC when the caller names no valid attachments", theirs: "the request has no list", ours: "an empty list",
			why: "section 3 of the specification: a request for GC must have the key"}),
		differs(`^portmap/hostPort taken`, `^add`, anything, difference{
			what: "a host port that another container has", theirs: "success; the first container keeps the traffic", ours: "an error that names the other container", why: "somebody's port would silently not work"}),
		differs(`^dummy/dns$`, `^add`, `dns|nameservers|search|192\.0\.2\.53|"s"|\]|\}`, difference{
			what: "`dns` of dummy", theirs: "no effect", ours: "replaces IPAM's, as with every other plugin", why: "a key means the same in all of them"}),
		differs(`^(firewall 0\.[123]\.|bandwidth 0\.[12]\.|vrf 0\.([12]\.|3\.0))`, anything, anything, difference{
			what: "firewall before 0.4.0, vrf before 0.3.1, bandwidth before 0.3.0", theirs: "refused, when the plugins before it have done their work, which then stays", ours: "work: the kernel tells what the result of these versions does not",
			why: "a list has one version, and every plugin of ours knows every version"}),
		differs(`^sbr [0-9.]+$`, `^added: namespace a`, `^route fd01::/64 .* table 100$`, difference{
			what: "sbr with addresses of both families", theirs: "IPv6's subnet also in the table of IPv4's address", ours: "each in its own", why: "no rule leads an IPv6 packet there"}),
		differs(`^sbr [0-9.]+$`, `^(del of an ended|ended)`, anything, difference{
			what: "DEL of sbr when its container ended", theirs: "an error if `CNI_NETNS` is given: addresses stay held, and the attachment stays in the cache", ours: "success", why: idle}),
	}
}
