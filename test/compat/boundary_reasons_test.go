package compat

// refusals returns the reasons for which both sides refuse a value. Each has a pattern of the reference's error and a
// pattern of Fairlead's error.
func refusals() []refusal {
	return []refusal{
		// The configuration: wrong types, unknown words, numbers beyond their limits, missing keys.
		{`cannot unmarshal|json: `, `want |cannot`},
		{`unknown (macvlan mode|ipvlan mode|ingress policy)|unrecognized backend`, `(mode|ingressPolicy|backend) = .*: want `},
		{`gateways list contains multiple IPv4 addresses`, `gateways\[1\] = .*: want at most one gateway for each family`},
		{`Failed to find Gateway`, `gateways\[0\] = "0.0.0.0": want an address`},
		{`Failed to add default route to .*: network is unreachable`, `route add default via .*: network is unreachable`},
		{`invalid static gateway IP address`, `gateways\[0\] = .*: want an address`},
		{`unknown ipmasq backend`, `ipMasqBackend = .*: want`},
		{`cannot set hairpin mode and promiscuous mode at the same time`, `cannot set hairpin mode and promiscuous mode at the same time`},
		{`specify either "device"`, `specify either "device"`},
		{`MasqMarkBit must be between 0 and 31`, `markMasqBit = .*: want a bit from 0 to 31`},
		{`Invalid (host|container) port number`, `(host|container)Port.*: want a port from 1 to 65535`},
		{`tables.*(-p (x|icmp| tcp) |dport 65536|10\.1\.0\.2:65536)|/dev/stdin:15:.*(Service out of range|syntax error)`, `(protocol = .*: want tcp, udp or sctp|Port = 65536: want a port)`},
		{`Can not parse option`, `option( = .*)?: want a number from 1 to 254`},
		{`error dialing DHCP daemon`, `no DHCP daemon answers`},
		{`if burst is set, rate must also be set`, `a burst needs a rate`},
		{`create qdisc: invalid argument|burst cannot be more than 4GB`, `(Rate|Burst) = .*: want .* bits`},
		{`configuration contains nftables-specific options|-m multiport -p tcp`, `these conditions are in nft syntax`},
		{`/dev/stdin:10:39-41: Error: syntax error`, `nft add table inet fairlead`},
		{`invalid net sysctl key`, `want a key of the network namespace`},
		{`Transmit Queue Length of eth0 is`, `txQLen = .*: want 0 to 4294967295 packets`},
		{`cannot use IPAM when DisableContainerInterface flag is set`, `cannot use IPAM`},
		{`unable to setup DNAT: .* -j x .*Chain 'x`, `Chain 'x' does not exist`},
		{`Invalid target name \(too short\)`, `want the name of a chain`},
		{`RULE_INSERT failed|chain name .a-name`, `want the name of your own chain`},
		{`Invalid chain name`, `Invalid chain name`},

		// Addresses and pools.
		{`invalid (CIDR|IP) address|expected to be in CIDR notation`, `want an? (address|destination|network)|no IP ranges specified|missing: want`},
		{`no IP ranges specified`, `no IP ranges specified`},
		{`invalid range set \d: (empty range set|IP <nil> not v4 nor v6)`, `empty range set|subnet: missing`},
		{`overlap`, `overlaps with`},
		{`too small to allocate from`, `too small to allocate from`},
		{`host bits set`, `host bits are set`},
		{`not in network`, `is not in the subnet|the range starts after its end`},
		{`IPNet IP and Mask version mismatch`, `an IPv4 network in IPv6 notation`},
		{`no IP addresses available in range set`, `no IP addresses available in range set`},
		{`gateway \S+ not in network`, `ipam.gateway = .*: want an address of a host`},
		{`RangeStart \S+ is after RangeEnd`, `the range starts after its end|is not in the subnet`},
		{`could not add IP address <nil>`, `ipam.gateway = "::1": want an address of a host`},
		{`requested IP address .* is not available`, `requested IP .* is already taken`},
		{`ipv6/conf/eth0/keep_addr_on_down: no such file`, `an IPv6 address needs an MTU of at least 1280 bytes`},
		{`IPAM plugin returned missing IP config`, `returned no address`},
		{`failed to add IP addr .*: file exists`, `Address already assigned`},
		{`Failed to (match addr 0\.0\.0\.0/24|find Gateway .* for interface)`, `want a unicast address`},
		{`SIGSEGV`, `ipam.routes\[0\].dst: missing`},
		{`failed to add route .*: (invalid argument|network is unreachable)`, `ip route add .*: (invalid argument|network is unreachable)|scope = .*: want 0 to 255`},
		{`not the same IP family`, `want a gateway of the same address family`},
		{`(open|read) \S+: (no such file|is a directory)`, `(open|read) \S+: (no such file|is a directory)`},

		// Links.
		{`invalid argument|less than device minimum|greater than device maximum|invalid MTU`, `mtu = .*: (want|more than)|mtu less than device minimum|MTU \d+ is less than|to /proc/sys/\S+: invalid argument`},
		{`could not add VRF .*: invalid argument|expected to have a valid vrf name`, `vrfname( = .*)?: interface name`},
		{`minID and maxID should be configured simultaneously`, `want both minID and maxID`},
		{`could not add route .*Table: 254 .*network is unreachable`, `vrf.* table = 254: want 0 \(a free one\)`},
		{`Failed to find Gateway`, `^.*vrf.* table = .*: want 0 \(a free one\)`}, // the reference's CHECK fails after every vrf
		{`could not add .*(invalid argument|numerical result out of range|LinkAttrs.Name cannot be empty)`, `bridge = .*: interface name`},
		{`invalid MAC address|doesn't match container Mac|[aA]ssign requested address|Invalid address length|invalid lladdr|failed to (create macvlan|make veth pair): invalid argument`,
			`is not a hardware address|want a unicast address`},
		{`Link not found`, `no interface|no such (device|bridge)|interface name contains`},
		{`no default route interface found`, `no default route whose interface`},
		{`"master" field is required|chained master failure`, `master( = .*)?: missing`},
		{`failed to set "eth0" UP: network is down`, `is down: a VLAN works only while its parent is up`},
		{`requires an IPAM configuration`, `ipam: missing`},
		{`invalid VLAN ID`, `vlan(Id)? = .*: want a VLAN ID`},
		{`incorrect trunk (id|minID|maxID) parameter`, `vlanTrunk.*want VLAN IDs from 1 to 4094`},
		{`collectVlanTrunk`, `vlanTrunk\[0\] = null: want id`},
		{`minID is greater than maxID`, `minID is greater than maxID`},
		{`failed to create vlan: file exists`, `another link of up0 has VLAN`},
		{`is not a VRF`, `is not a vrf`},
		{`already exist with different routing table`, `exists with table`},
		{`could not add VRF .*numerical result out of range`, `vrfname = .*: interface name`},
		{`could not add route .*Table: 254.*network is unreachable`, `restore route .* in table 254: network is unreachable`},
		{`already exists`, `already exists|exists and is not a bridge|exists and is not a VRF`},
		{`already has an IP address different`, `already has an address different`},
		{`failed to find physical interface`, `no device on the host has this address`},
		{`error with host device: lstat|failed to read directory|DeviceID .* not found or unsupported`, `no such device, or it has no network interface|want a device's address on its bus`},
		{`must be absolute and begin with /sys/devices/`, `want a device's folder below /sys/devices/`},
		{`failed set socket label`, `this host has no SELinux`},
		{`system_bus_socket: connect: no such file`, `firewalld: system bus at .*: no such file`},
	}
}

// boundaryRejectedByFairlead returns why Fairlead rejects a value that the reference accepts. The pattern is of the case and
// our error. Each reason is a line of docs/compatibility.md.
func boundaryRejectedByFairlead() []reason {
	return []reason{
		{`^sbr/table .*want a table from 1 to`, "sbr's `table` beyond 4294967295, or 255: the reference writes the number modulo 2^32, and 255 is the kernel's table of local addresses"},
		{`^bridge/vlanTrunk \[{}\]`, "an entry of `vlanTrunk` without IDs: a typo would go unnoticed"},
		{`^ipvlan/mtu 1501`, "an `mtu` of ipvlan that is larger than the master's: the master drops such packets"},
		{`^dhcp/priority .*ipam.priority = .*: want 0`, "dhcp's `priority` beyond the kernel's limits: in the reference the number wraps"},
		{`^dhcp/(request|provide) .*option = "(0|255)"`, "dhcp's options 0 and 255: they pad and end the options of a message (RFC 2132, 3)"},
		{`^tuning/sysctl .*want (a key of the network namespace|names separated by dots)`, "tuning's sysctls with empty names or `..`: the reference writes to whatever path they make"},
		{`^portmap/hostIP .*want an address of the host`, "a `hostIP` that is no address: in the reference the port does not work"},
		{`^portmap/conditionsV6 .*these conditions are in nft syntax`, "conditions in nft syntax for iptables: the reference fails when the first IPv6 address uses them"},
		{`^portmap/protocol " tcp"`, "a `protocol` with spaces: the reference passes the text to nft"},
		{`^host-local/rangeStart "10.1.0.255"`, "a `rangeStart` that is the broadcast address: the reference allocates it"},
		{`^tap/(runtimeConfig\.)?mac `, "tap's hardware addresses in incomplete forms: the reference passes the text to ip"},
		{`^tap/(owner|group) 4294967295`, "tap's `owner` and `group` 4294967295: the kernel takes the number for none"},
	}
}

// boundaryRejectedByReference is the reverse. The pattern is of the case and the reference's error.
func boundaryRejectedByReference() []reason {
	return []reason{
		{`^dhcp/request \[{"option": 26}\]`, "the number of a DHCP option as a number"},
		{`^existing/bridge with an address of another subnet|^host-local/ranges .*already has an IP address different`, "a bridge with several subnets of IPv4"},
		{`^existing/bridge promiscuous`, "CHECK while somebody captures packets on the bridge"},
		{`(mac|runtimeConfig.mac) "02(-00|00\.)`, "hardware addresses with dashes or dots: the reference's CHECK compares the text, and its tap does not read it"},
		{`^bandwidth/(in|e)gressBurst \d+: .*(4GB|create qdisc: invalid argument)`, "bursts up to the kernel's limit of 4 GiB: the reference refuses some that fit"},
		{`^bandwidth/(in|e)gressRate 8796093022208`, "rates up to 2^40 bytes per second"},
		{`^portmap/protocol "TCP"`, "`protocol` in upper case with nftables"},
		{`/routes .*(file exists|10\.9\.0\.7 ffff0000.*invalid argument)`, "a route that is listed twice, or whose destination has host bits"},
		{`^host-device/runtimeConfig\.deviceID .*not found or unsupported`, "a `deviceID` that does not exist next to `device`, which takes precedence"},
	}
}
