package compat

// These are parts of a step's text, and what sides have there.
const (
	anything  = `(?s).*`
	something = `(?s).+`
	nothing   = ``
	failed    = `error`
	succeeded = `success`
	aResult   = `(?s)cniVersion = .*` // a case that only one side accepts has more checks: see aloneProblems
	held      = `(?:^net/[^l].*$|^eth0$)\n?`
	delAgain  = "specification: DEL must succeed if there is nothing to remove"
)

// differences returns all deliberate differences.
func differences() []difference {
	return append(shownDifferences(), provenDifferences()...)
}

// shownDifferences returns the differences that transcripts show.
func shownDifferences() []difference {
	return append([]difference{
		{what: "router advertisements in the container", reference: "accepted", fairlead: "`accept_ra=0` if IPAM assigns IPv6 addresses",
			why:    "a neighbour on the network could otherwise give the container a default route (CVE-2020-10749)",
			always: true,
			shows:  []shown{show(``, `namespace`, `^sysctl net/ipv6/conf/eth0/accept_ra:(.)`, `1`, `0`)}},
		{what: "loopback's addresses in results before 1.0.0", reference: "none at 0.1.0 and 0.2.0, later with `\"version\": \"\"`",
			fairlead: "present, with version 4 and 6", why: "the specification allows no other version",
			shows: []shown{
				show(`^loopback 0\.[12]\.`, `^(add|added)`, `^(?:result\.)?ip[46]\..*$`, nothing, `(?:result\.)?ip4\.ip = "127\.0\.0\.1/8"\n(?:result\.)?ip6\.ip = "::1/128"`),
				show(`^loopback 0\.[34]\.`, `^(add|added)`, `\bips\[\d\]\.version = "(.*)"$`, `\n`, `4\n6`),
			}},
		{what: "a second DEL of host-device", reference: "an error: the interface is not in the container", fairlead: "success", why: delAgain,
			shows: []shown{show(`^host-device [0-9.]+$`, `^del`, anything, failed, succeeded)}},
		{what: "DEL of host-device after its container ended",
			reference: "an error if `CNI_NETNS` is given, and the runtime keeps the attachment in its cache", fairlead: "success", why: delAgain,
			shows: []shown{show(`^host-device [0-9.]+$`, `^ended: result cache`, anything, `(?s)net-ID-a-eth0: .+`, nothing)}},
		{what: "a device that host-device returns to the host", reference: "down", fairlead: "up, if it was up before ADD",
			why:   "the device has its former state again",
			shows: []shown{show(`^(host-device|tuning)`, `^(collected|deleted): namespace host`, `^link dev0 [^\n]*?( up)?$`, nothing, ` up`)}},
		{what: "hardware address of a bridge without `isGateway`",
			reference: "the lowest address of its ports: it may change when containers come and go, and then CHECK fails",
			fairlead:  "fixed when the bridge is created", why: "CHECK of an attachment must not depend on other attachments", chance: true,
			shows: []shown{show(`^bridge/(bridge|mtu|vlan)$`, `^check`, anything, failed, succeeded)}},
		{what: "`mtu` and `advmss` of a route", reference: "in the result, but not set", fairlead: "set", why: "specification 1.1.0 defines them",
			shows: []shown{
				show(`^(bridge|ptp)/routes: mtu$`, `^added: namespace a`, `^route 10\.9\.0\.0/16 [^\n]*?( \{.*)?$`, nothing, ` {"mtu":1300}`),
				show(`^(bridge|ptp)/routes: advmss$`, `^added: namespace a`, `^route 10\.9\.0\.0/16 [^\n]*?( \{.*)?$`, nothing, ` {"advmss":1200}`),
				show(`^(bridge|ptp)/routes: table of IPv6$`, `^added: namespace a`, `^route fd09::/64 [^\n]*?( \{.*)?$`, nothing, ` {"mtu":1400}`),
			}},
		{what: "CHECK of a route in a table other than main", reference: "an error: it searches only the main table", fairlead: "success",
			why:   "the route exists",
			shows: []shown{show(`^((bridge|ptp)/routes: table|host-device/useInterfaceNetwork( and ipam)?$)`, `^check`, anything, failed, succeeded)}},
		{what: "DEL with a configuration that ADD rejects", reference: "an error, and the objects stay",
			fairlead: "success: everything is removed by name and owner", why: "a configuration that became invalid must not prevent the removal",
			shows: []shown{
				show(rejectedByADD, `^del a`, anything, failed, succeeded),
				show(rejectedByADD, `^`+afterFailedADD+`container`, anything, `(?s)\+ addr .*\+ link eth0 .*`, nothing),
				show(rejectedByADD, `^`+afterFailedADD+`addresses`, held, `net/10\.1\.0\.2: ID-a\r\n\neth0\n`, nothing),
			}},
		{what: "when an invalid configuration is detected", reference: "often after an address was allocated", fairlead: "before anything is changed",
			why:   "there is nothing to undo",
			shows: []shown{show(`^(bridge/ipMasqBackend unknown|vlan/master down)$`, `^`+afterFailedADD+`addresses`, `^net/last_reserved_ip.*$`, `net/last_reserved_ip\.0: 10\.1\.0\.2`, nothing)}},
		{what: "CHECK of ipvlan without `master`", reference: "an error: it searches for an interface without a name",
			fairlead: "compares with the interface that ADD used", why: "ADD accepts the configuration",
			shows: []shown{show(`^ipvlan/master absent(, default route of IPv6)?$`, `^check`, anything, failed, succeeded)}},
		{what: "`mtu` of ipvlan, negative or larger than the master's", reference: "accepted", fairlead: "an error, like macvlan and vlan",
			why:   "a key has the same meaning in all three plugins",
			shows: []shown{show(`^ipvlan/mtu (negative|more)`, `^add`, anything, aResult, failed)}},
		{what: "ipvlan without `ipam`", reference: "an error, and the interface stays", fairlead: "layer 2 only, like macvlan and vlan",
			why: "a key has the same meaning in all three plugins",
			shows: []shown{show(`^ipvlan/ipam absent$`, `^add`, anything, failed,
				`cniVersion = "1\.1\.0"\ninterfaces\[0\]\.mac = "(?:MAC|02:00:00:00:00:05)"\ninterfaces\[0\]\.name = "eth0"\ninterfaces\[0\]\.sandbox = "NETNS-a"`)}},
		{what: "`args.cni.mac` of macvlan and tap", reference: "no effect", fairlead: "sets the hardware address, like bridge",
			why: "one precedence for every plugin that sets hardware addresses",
			shows: []shown{
				show(`^(macvlan|tap)/args.cni.mac$`, `^(add|added: result cache)`, `interfaces\[0\]\.mac = "(.*)"$`, `MAC`, `02:00:00:00:00:ab`),
				show(`^(macvlan|tap)/args.cni.mac$`, `^added: namespace a`, `^link eth0 .* mac (\S+)`, `MAC`, `02:00:00:00:00:ab`),
			}},
		{what: "`mac` and `mtu` of a tap that has both `owner` and `group`", reference: "no effect", fairlead: "both are set",
			why: "a key has the same effect whatever other keys are set",
			shows: []shown{
				show(`^tap/mac, mtu and owner`, `^(add|added: result cache)`, `interfaces\[0\]\.mac = "(.*)"$`, `MAC`, `02:00:00:00:00:ad`),
				show(`^tap/mac, mtu and owner`, `^added: namespace a`, `^link eth0 tun (mtu \d+ mac \S+)`, `mtu 1500 mac MAC`, `mtu 1400 mac 02:00:00:00:00:ad`),
			}},
		{what: "a tap whose setup fails halfway", reference: "stays until DEL, or under a name that DEL does not know", fairlead: "is removed",
			why:   "like any failed ADD",
			shows: []shown{show(`^tap/(mtu negative|bridge missing)$`, `^`+afterFailedADD+`container`, anything, `(?s)\+ link vethX tun .*`, nothing)}},
		{what: "a port mapping without `protocol`", reference: "an error from the backend's command", fairlead: "tcp",
			why:   "TCP is the only sensible default",
			shows: []shown{show(`^portmap/protocol absent`, `^add`, anything, failed, aResult)}},
		{what: "a rate without a burst", reference: "an error", fairlead: "a burst computed from the rate and the MTU",
			why:   "users know the rate, rarely the burst",
			shows: []shown{show(`^bandwidth/ingressBurst absent`, `^add`, anything, failed, aResult)}},
		{what: "an unknown `backend` of firewall", reference: "treated as iptables", fairlead: "an error that lists the known ones",
			why:   "a typo would go unnoticed",
			shows: []shown{show(`^firewall/backend unknown`, `^add`, anything, aResult, failed)}},
		{what: "host ports on a host that drops other forwarded packets", reference: "not forwarded", fairlead: "forwarded",
			why: "a requested host port must work",
			shows: []shown{show(`^firewall/`, `^rules`, `^.*--ctstate DNAT.*$`, nothing,
				`-A CNI-FORWARD -d 10\.1\.0\.2/32 -m conntrack --ctstate DNAT -j ACCEPT`)}},
		{what: "CHECK of the plugins before sbr and vrf", reference: "an error: sbr and vrf moved the expected routes",
			fairlead: "success: a later plugin may move a route", why: "the attachment is complete",
			shows: []shown{show(`^(sbr/(type|gateways( with|$)|addSourceHints)|vrf/(vrfname|table|table of another VRF)$|(sbr|vrf) [0-9.]+$)`, `^check`, anything, failed, succeeded)}},
		{what: "addresses and routes of a device that `useInterfaceNetwork` moved", reference: "lost after DEL", fairlead: "restored on the host",
			why:   "the device has its former state again",
			shows: []shown{show(`^host-device/useInterfaceNetwork( and ipam)?$`, `^deleted: namespace host`, `^((addr|((broadcast|local) )?route) .* dev dev0 .*)$`, nothing, something)}},
		{what: "rules that `useInterfaceNetwork` copied", reference: "stay in the container after DEL", fairlead: "removed", why: "DEL undoes ADD",
			shows: []shown{show(`^host-device/useInterfaceNetwork( and ipam)?$`, `^deleted: namespace a`, `^rule IPv4 .*"99".*$|^rule IPv4 \{"priority":99.*$`, something, nothing)}},
		{what: "a gateway outside the subnet of host-local", reference: "an error", fairlead: "accepted", why: "ptp has a route to it, and gateways such as fe80::1 are common",
			shows: []shown{show(`^ptp/ipam.gateway outside the subnet$`, `^add`, anything, failed, aResult)}},
	}, moreShownDifferences()...)
}

// rejectedByADD matches cases whose configuration both sides reject, and in which only our DEL succeeds.
const rejectedByADD = `^firewall/ingressPolicy unknown$|^vrf/vrfname absent|^dummy/ipam absent|` +
	`^bandwidth/(egressBurst too large|ingressRate absent$)|^portmap/portMappings port 0|` +
	`^host-device/(device (missing|none of the four)|pciBusID missing|runtimeConfig.deviceID missing)|` +
	`^macvlan/bcqueuelen negative|^vlan/(master (absent|missing)|vlanId (5000|negative)|mtu (negative|more)|linkInContainer no)|` +
	`^ipvlan/(master absent, no default route|prevResult has no interface)`
