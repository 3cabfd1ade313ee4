package compat

import (
	"regexp"
	"sync/atomic"
)

const (
	outcome  = `^(error|success)$`
	anything = ``
	delAgain = "specification: DEL must succeed if there is nothing to remove"
)

// differs returns a difference that transcripts show in the given cases, steps and lines.
func differs(cases, steps, lines string, d difference) difference {
	d.cases, d.steps, d.lines, d.seen = regexp.MustCompile(cases), regexp.MustCompile(steps), regexp.MustCompile(lines), &atomic.Bool{}
	return d
}

// differences returns all deliberate differences.
func differences() []difference {
	return append(shownDifferences(), []difference{
		{what: "hardware addresses of containers", reference: "random", fairlead: "derived from network, container and interface",
			why: "a container keeps its hardware address when it is attached again, without stored state"},
		{what: "names of the host ends", reference: "`veth` and random digits", fairlead: "`veth` and digits from a hash of network, container and interface",
			why: "DEL and GC find them without stored state"},
		{what: "IPAM", reference: "a process", fairlead: "a function call if `ipam.type` resolves to Fairlead's program, otherwise a process",
			why: "starting a process takes longer than the allocation"},
		{what: "rules for masquerade and host ports", reference: "`ip cni_plugins_masquerade`, `ip cni_hostport`, or iptables chains for each container", fairlead: "sets and maps in `inet fairlead`; with iptables, chains whose names begin with `FL-`",
			why: "the cost of a packet and of an attach does not grow with the number of containers"},
		{what: "IPv6 addresses", reference: "wait for duplicate address detection: ADD takes 1 to 2 seconds", fairlead: "set without it, unless `enabledad` is true", why: "IPAM already ensures that they are unique"},
		{what: "a failed ADD", reference: "its objects stay until DEL", fairlead: "is undone, and its address is released", why: "not every runtime calls DEL after a failed ADD"},
		{what: "protocol of routes", reference: "`boot`", fairlead: "102", why: "it identifies Fairlead's routes"},
		{what: "link-local addresses of a bridge's ports", reference: "present", fairlead: "none", why: "a port is not an endpoint: it would answer instead of the bridge"},
	}...)
}

func shownDifferences() []difference {
	return []difference{
		differs(anything, `namespace`, `^sysctl net/ipv6/conf/eth0/accept_ra:`, difference{
			what: "router advertisements in the container", reference: "accepted", fairlead: "`accept_ra=0` if IPAM assigns IPv6 addresses",
			why: "a neighbour on the network could otherwise give the container a default route (CVE-2020-10749)"}),
		differs(`^loopback 0\.`, `^(add|added)`, `"(version|ip4|ip6|ip)":|"dns": {}|^ +},?$`, difference{
			what: "loopback's addresses in results before 1.0.0", reference: "none at 0.1.0 and 0.2.0, later with `\"version\": \"\"`", fairlead: "present, with version 4 and 6",
			why: "the specification allows no other version"}),
		differs(`^host-device [0-9.]+$`, `^del`, outcome, difference{
			what: "a second DEL of host-device", reference: "an error: the interface is not in the container", fairlead: "success", why: delAgain}),
		differs(`^host-device [0-9.]+$`, `^ended: result cache`, anything, difference{
			what: "DEL of host-device after its container ended", reference: "an error if `CNI_NETNS` is given, and the runtime keeps the attachment in its cache", fairlead: "success", why: delAgain}),
		differs(`^(host-device|tuning)`, `^(collected|deleted): namespace host`, `^link dev0`, difference{
			what: "a device that host-device returns to the host", reference: "down", fairlead: "up, if it was up before ADD", why: "the device has its former state again"}),
		differs(`^bridge/(bridge|mtu|vlan)$`, `^check`, outcome, difference{
			what: "hardware address of a bridge without `isGateway`", reference: "the lowest address of its ports: it may change when containers come and go, and then CHECK fails", fairlead: "fixed when the bridge is created",
			why: "CHECK of an attachment must not depend on other attachments", chance: true}),
		differs(`^(bridge|ptp)/routes: (mtu|advmss|table of IPv6)$`, `^added: namespace a`, `^route (10\.9|fd09)`, difference{
			what: "`mtu` and `advmss` of a route", reference: "in the result, but not set", fairlead: "set", why: "specification 1.1.0 defines them"}),
		differs(`^(bridge|ptp)/routes: table`, `^check`, outcome, difference{
			what: "CHECK of a route in a table other than main", reference: "an error: it searches only the main table", fairlead: "success", why: "the route exists"}),
		differs(`^bridge/(ipam absent|disableContainerInterface)$`, `^check`, outcome, difference{
			what: "CHECK of a bridge without `ipam`", reference: "an error: no plugin name provided", fairlead: "success", why: "ADD accepts the configuration"}),
		differs(`(firewall/(ingressPolicy unknown$)|vrf/vrfname absent|dummy/ipam absent|bandwidth/(egressBurst too large|ingressRate absent$|ingressBurst absent)|portMappings port 0|device missing|none of the four|pciBusID missing|deviceID missing|bcqueuelen negative)|^vlan/(master (absent|missing)|vlanId (5000|negative)|mtu (negative|more)|linkInContainer no)|^ipvlan/(master absent, no default route|prevResult has no interface)`, `^(del a|deleted after)`, anything, difference{
			what: "DEL with a configuration that ADD rejects", reference: "an error, and the objects stay", fairlead: "success: everything is removed by name and owner",
			why: "a configuration that became invalid must not prevent the removal"}),
		differs(`^(bridge/ipMasqBackend unknown|vlan/master down)$`, `^deleted after a failed ADD: addresses`, `last_reserved`, difference{
			what: "when an invalid configuration is detected", reference: "often after an address was allocated", fairlead: "before anything is changed", why: "there is nothing to undo"}),
		differs(`^ipvlan/master absent(, default route of IPv6)?$`, `^check`, outcome, difference{
			what: "CHECK of ipvlan without `master`", reference: "an error: it searches for an interface without a name", fairlead: "compares with the interface that ADD used", why: "ADD accepts the configuration"}),
		differs(`^ipvlan/mtu (negative|more)`, `^add`, anything, difference{
			what: "`mtu` of ipvlan, negative or larger than the master's", reference: "accepted", fairlead: "an error, like macvlan and vlan", why: "a key has the same meaning in all three plugins"}),
		differs(`^(ipvlan|vlan)/ipam absent$`, `^add`, anything, difference{
			what: "ipvlan and vlan without `ipam`", reference: "an error, and the interface stays", fairlead: "layer 2 only, like macvlan", why: "a key has the same meaning in all three plugins"}),
		differs(`^(macvlan|tap)/args.cni.mac$`, anything, `"mac":|^link eth0`, difference{
			what: "`args.cni.mac` of macvlan and tap", reference: "no effect", fairlead: "sets the hardware address, like bridge", why: "one precedence for every plugin that sets hardware addresses"}),
		differs(`^tap/mac, mtu and owner`, anything, `"mac":|^link eth0`, difference{
			what: "`mac` and `mtu` of a tap that has both `owner` and `group`", reference: "no effect", fairlead: "both are set", why: "a key has the same effect whatever other keys are set"}),
		differs(`^tap/(mtu negative|bridge missing)$`, `^deleted after a failed ADD: container`, anything, difference{
			what: "a tap whose setup fails halfway", reference: "stays until DEL, or under a name that DEL does not know", fairlead: "is removed", why: "like any failed ADD"}),
		differs(`^portmap/protocol absent`, `^add`, anything, difference{
			what: "a port mapping without `protocol`", reference: "an error from the backend's command", fairlead: "tcp", why: "TCP is the only sensible default"}),
		differs(`^bandwidth/ingressBurst absent`, `^(add|added|check|shaping|deleted after|del)`, anything, difference{
			what: "a rate without a burst", reference: "an error", fairlead: "a burst computed from the rate and the MTU", why: "users know the rate, rarely the burst"}),
		differs(`^firewall/backend unknown`, `^(add|added|check|del|deleted)`, anything, difference{
			what: "an unknown `backend` of firewall", reference: "treated as iptables", fairlead: "an error that lists the known ones", why: "a typo would go unnoticed"}),
		differs(`^firewall/`, `^rules`, `--ctstate DNAT`, difference{
			what: "host ports on a host that drops other forwarded packets", reference: "not forwarded", fairlead: "forwarded", why: "a requested host port must work"}),
		differs(`^(sbr/type|vrf/(vrfname|table|table of another VRF)$|(sbr|vrf) [0-9.]+$)`, `^check`, outcome, difference{
			what: "CHECK of the plugins before sbr and vrf", reference: "an error: sbr and vrf moved the expected routes", fairlead: "success: a later plugin may move a route", why: "the attachment is complete"}),
		differs(`^portmap/masqAll \(nftables\)`, `^from (world|host)`, anything, difference{
			what: "`masqAll` with nftables", reference: "no effect", fairlead: "like iptables: every client is masqueraded", why: "a key has the same meaning with both backends"}),
		differs(`^(bridge|ptp)/routes: scope link$`, `^add`, anything, difference{
			what: "a route with scope link and no gateway", reference: "an error: it adds the address's gateway, which is invalid in this scope", fairlead: "a route without a gateway",
			why: "a DHCP server can send such a route (RFC 3442)"}),
		differs(`^dhcp 0\.[12]\.0$`, `^added: namespace a`, `^route default`, difference{
			what: "dhcp's `priority` at 0.1.0 and 0.2.0", reference: "lost: results of these versions have no such key", fairlead: "set", why: "the IPAM plugin runs in the same process, so nothing is lost"}),
		differs(`^dhcp/daemonSocketPath no daemon answers$`, `^(del a|deleted after)`, anything, difference{
			what: "DEL when no DHCP daemon answers", reference: "an error, and the interface stays", fairlead: "success: a daemon that is started later finds no interface and drops the lease",
			why: "a stopped daemon must not block the removal of a pod"}),
		differs(`^dhcp/request name servers$`, `^add`, anything, difference{
			what: "name servers that `request` lists", reference: "not in the result", fairlead: "in the result's `dns`", why: "the request has no other purpose"}),
		differs(`^dhcp/routes$`, `^add`, anything, difference{
			what: "`routes` next to `\"type\": \"dhcp\"`", reference: "no effect", fairlead: "added if the gateway is in the lease's subnet", why: "existing configurations have them, like a former example in the specification"}),
		differs(`^dhcp/request static routes$`, `^add`, anything, difference{
			what: "static routes to a host (option 33)", reference: "treated as a route to the classful network: ADD fails", fairlead: "a route to the host", why: "RFC 2132, 5.8"}),
		differs(`^requests`, `^(ADD|CHECK|DEL|GC|STATUS)`, `^  "capabilities": \{|^    "(ips|portMappings)": (true|false)|^  },?$`, difference{
			what: "`capabilities` in a plugin's configuration", reference: "passed on", fairlead: "removed", why: "specification, section 3: the key must not be in the request"}),
		differs(`^requests 1\.1\.0`, `^GC`, `^  "cni.dev/`, difference{
			what: "GC when the caller passes no valid attachments", reference: "the request has no list", fairlead: "an empty list",
			why: "specification, section 3: a GC request must have the key"}),
		differs(`^portmap/hostPort taken`, `^add`, anything, difference{
			what: "a host port that another container uses", reference: "success; the first container keeps the traffic", fairlead: "an error that names the other container", why: "otherwise one of the two ports would silently not work"}),
		differs(`^dummy/dns$`, `^add`, `dns|nameservers|search|192\.0\.2\.53|"s"|\]|\}`, difference{
			what: "`dns` of dummy", reference: "no effect", fairlead: "replaces the DNS settings from IPAM, like every other plugin", why: "a key has the same meaning in all plugins"}),
		differs(`^(firewall 0\.[123]\.|bandwidth 0\.[12]\.|vrf 0\.([12]\.|3\.0))`, anything, anything, difference{
			what: "firewall before 0.4.0, vrf before 0.3.1, bandwidth before 0.3.0", reference: "rejected after the plugins before them ran, and the objects of those stay", fairlead: "work: the kernel provides what results of these versions lack",
			why: "a list has one version, and every Fairlead plugin supports every version"}),
		differs(`^sbr [0-9.]+$`, `^added: namespace a`, `^route fd01::/64 .* table 100$`, difference{
			what: "sbr with addresses of both families", reference: "the IPv6 subnet is also in the table of the IPv4 address", fairlead: "each subnet is only in its own table", why: "no rule sends IPv6 packets to that table"}),
		differs(`^sbr [0-9.]+$`, `^(del of an ended|ended)`, anything, difference{
			what: "DEL of sbr after its container ended", reference: "an error if `CNI_NETNS` is given: addresses stay allocated, and the attachment stays in the cache", fairlead: "success", why: delAgain}),
		differs(`^(macvlan|ipvlan|vlan|tap|host-device)/dns from ipam$`, `^(add|added)`, `dns|nameservers|domain|192\.0\.2\.54|\]|\}`, difference{
			what: "DNS settings from IPAM with macvlan, ipvlan, vlan, tap and host-device", reference: "lost", fairlead: "in the result, like bridge and ptp", why: "a key has the same meaning in all plugins"}),
		differs(`^tuning/sysctl (in another form|in hexadecimal|that can only be written)$`, `^check`, outcome, difference{
			what: "CHECK of a sysctl that the kernel returns as another text, or not at all", reference: "an error: it compares the texts", fairlead: "success: ADD recorded what the kernel stored", why: "the value is as configured"}),
	}
}
