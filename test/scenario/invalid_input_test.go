package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// invalidInputs are configurations or arguments that cannot work. Each has the expected error message, or a part of it.
// The failed ADD must leave nothing.
var invalidInputs = []struct {
	name    string
	conf    string // one plugin, or a list if it has "plugins"; $IPAM is a valid ipam section
	env     string // additional variables: "CAP_ARGS={...}"
	netns   string // "" means a valid one
	ifname  string // "" means eth0
	prepare string // configuration added first, for another container ("b") or, with "same ", for this one
	want    string // the message, with $WORK

	unreadable bool // DEL rejects it, too
	shares     bool // objects that attachments share (iptables chains) were created before the failure
}{
	{name: "malformed JSON", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge",}`,
		want: `$WORK/net.conf:1:55: want a key in double quotes, found '}': remove the comma before it`},
	{name: "empty file", unreadable: true, conf: ` `, want: `$WORK/net.conf:1:1: empty: want a JSON object`},
	{name: "wrong type", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "isGateway": "yes", $IPAM}`,
		want: `isGateway = "yes": want a boolean: true or false`},
	{name: "wrong type, deep", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "vlanTrunk": [{"id": 5}, {"id": "6"}], $IPAM}`,
		want: `vlanTrunk[1].id = "6": want a whole number`},
	{name: "no type", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "n"}`, want: `type: missing`},
	{name: "type with a path", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "n", "type": "../bridge"}`, want: `without a path`},
	{name: "unknown version", unreadable: true, conf: `{"cniVersion": "7.0.0", "name": "n", "type": "bridge", $IPAM}`, want: `incompatible CNI versions`},
	{name: "unknown place for shaping", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bandwidth", "egressAt": "moon", "egressRate": 1000, "prevResult": {"cniVersion": "1.0.0"}}`,
		want: `egressAt = "moon": want "host"`},
	{name: "unknown link type", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "linkType": "netlink", $IPAM}`,
		want: `linkType = "netlink": want "veth" (the default) or "netkit"`},
	{name: "antiSpoof without ipam", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "antiSpoof": true}`,
		want: `antiSpoof = true: needs ipam: it allows only addresses from IPAM, so without ipam the container could send nothing. To check only the hardware address, set macspoofchk on a bridge`},
	{name: "antiSpoof is a string", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "antiSpoof": "yes", $IPAM}`,
		want: `antiSpoof = "yes": want a boolean: true or false`},
	{name: "ptp without addresses", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp"}`, want: `ipam.type: want an IPAM plugin, for example "host-local"`},
	{name: "nft conditions with the iptables backend", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "portmap", "backend": "iptables", "conditionsV6": ["ip6", "saddr"], "prevResult": {"cniVersion": "1.0.0"}}`,
		want: `these conditions are in nft syntax`},
	{name: "bad network name", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "a/b", "type": "bridge", $IPAM}`, want: `invalid characters`},
	{name: "unknown plugin in a list", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "nosuch"}]}`,
		want: `failed to find plugin "nosuch" in path`},
	{name: "unknown IPAM", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "nosuch"}}`,
		want: `ipam nosuch: failed to find plugin "nosuch" in path`},
	{name: "bad CIDR", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/33"}}`,
		want: `ipam.subnet = "10.1.0.0/33": `},
	{name: "gateway of another family", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "gateway": "fd00::1"}]]}}`,
		want: `ipam.ranges[0][0].gateway = "fd00::1": `},
	{name: "range start after its end", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.5"}}`,
		want: `ipam.rangeStart = "10.1.0.9": `},
	{name: "exhausted range", prepare: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "10.1.0.0/30"}}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "10.1.0.0/30"}}`,
		want: `no IP addresses available in`},
	{name: "missing namespace", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`, netns: "/nonexistent/netns",
		want: `CNI_NETNS=/nonexistent/netns: the network namespace is gone`},
	{name: "netns is a regular file", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`, netns: "/etc/hostname",
		want: `not a network namespace`},
	{name: "netns is the host's", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`, netns: "/proc/self/ns/net",
		want: `is the network namespace of the plugin itself`},
	{name: "interface name too long", unreadable: true, conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`, ifname: "interface-too-long",
		want: `interface name is too long: at most 15 bytes: "interface-too-long"`},
	{name: "duplicate ADD", prepare: `same {"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`,
		want: `container a is already attached to network n as eth0, with 10.1.0.2/24: run DEL first`},
	{name: "duplicate host port", env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80}]}`,
		prepare: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		conf:    `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want:    `host port 8080/tcp on every address is already taken by container b (network n, interface eth0)`},
	{name: "host port taken by another network's container",
		env:     `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"hostIP":"127.0.0.1"}]}`,
		prepare: `{"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "ptp", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		conf:    `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want:    `host port 8080/tcp on 127.0.0.1 is already taken by container b (network other, interface eth0)`},
	{name: "two mappings of one port", env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80},{"hostPort":8080,"containerPort":81}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want: `: the same host port as portMappings[0]`},
	{name: "host port on an address with a zone", env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"hostIP":"fe80::1%eth0"}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want: `runtimeConfig.portMappings[0].hostIP = "fe80::1%eth0": want an address of the host`},
	{name: "host port on a multicast address", env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"hostIP":"ff02::1"}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want: `runtimeConfig.portMappings[0].hostIP = "ff02::1": want an address of the host`},
	{name: "host port 0", env: `CAP_ARGS={"portMappings":[{"hostPort":0,"containerPort":80}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want: `runtimeConfig.portMappings[0].hostPort = 0: want a port from 1 to 65535`},
	{name: "unknown protocol", env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"dccp"}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		want: `runtimeConfig.portMappings[0].protocol = "dccp": want tcp, udp or sctp`},
	{name: "both mark keys", conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "markMasqBit": 5, "externalSetMarkChain": "KUBE-MARK-MASQ"}]}`,
		want: `cannot specify externalSetMarkChain and markMasqBit at the same time`},
	{name: "unknown iptables option as condition", shares: true, env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "conditionsV4": ["--nonsense"], "capabilities": {"portMappings": true}}]}`,
		want: `unknown option "--nonsense"`},
	{name: "condition is not nft syntax", env: `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80}]}`,
		conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, {"type": "portmap", "conditionsV4": ["nonsense"], "capabilities": {"portMappings": true}}]}`,
		want: `syntax error`},
	{name: "portmap alone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "portmap"}`,
		want: `portmap must be called as chained plugin`},
	{name: "hairpin and promiscuous", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "hairpinMode": true, "promiscMode": true, $IPAM}`,
		want: `cannot set hairpin mode and promiscuous mode at the same time`},
	{name: "VLAN 5000", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "vlan": 5000, $IPAM}`,
		want: `vlan = 5000: want a VLAN ID from 0 (none) to 4094`},
	{name: "name of the VLAN's gateway too long", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "bridge": "a-long-name0", "vlan": 100, "isGateway": true, $IPAM}`,
		want: `bridge = "a-long-name0": vlan with isGateway adds an interface BRIDGE.VLAN to the host: interface name is too long: at most 15 bytes: "a-long-name0.100"`},
	{name: "trunk range start after its end", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "vlanTrunk": [{"minID": 9, "maxID": 5}], $IPAM}`,
		want: `vlanTrunk[0] = {"minID":9,"maxID":5}: minID is greater than maxID`},
	{name: "negative MTU", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "mtu": -1, $IPAM}`, want: `mtu = -1: want 0`},
	{name: "bad MAC", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "mac": "02:00", $IPAM}`, want: `"02:00" is not a hardware address`},
	{name: "bad bridge name", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "bridge": "a-bridge-with-a-name", $IPAM}`,
		want: `bridge = "a-bridge-with-a-name": interface name is too long`},
	{name: "unknown masquerade backend", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipMasqBackend": "ebtables", $IPAM}`,
		want: `ipMasqBackend = "ebtables": want "nftables" or "iptables"`},
	{name: "IPAM for a disabled interface", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "disableContainerInterface": true, $IPAM}`,
		want: `cannot use IPAM when the container's interface is left down`},
	{name: "bridge is another link type", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "bridge": "lo", $IPAM}`,
		want: `lo exists and is not a bridge`},
	{name: "ptp without a gateway", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24"}]}}`,
		want: `ptp needs a gateway for 10.1.0.9/24`},
	{name: "route MTU exceeds 32 bits", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24"}], "routes": [{"dst": "10.9.0.0/16", "mtu": 4294967296}]}}`,
		want: `ipam.routes[0].mtu = 4294967296: want 0 to 4294967295`},
	{name: "negative route scope", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "10.9.0.0/16", "scope": -1}]}}`,
		want: `ipam.routes[0].scope = -1: want 0 to 255`},
	{name: "unreachable route", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]}}`,
		want: `ip route add default via 192.0.2.1 dev eth0: network is unreachable`},
	{name: "fairlead-ipam without the agent", conf: `{"cniVersion": "1.1.0", "name": "n", "type": "ptp", "ipam": {"type": "fairlead-ipam"}}`,
		want: `this node has not joined network default yet: the agent does not answer at $WORK/run/agent.sock: no such file or directory: start it with "systemctl restart fairlead-agent"; in Kubernetes, see the pods of the DaemonSet fairlead`},
	{name: "cool-down is a string", conf: `{"cniVersion": "1.1.0", "name": "n", "type": "ptp", "ipam": {"type": "fairlead-ipam", "coolDown": "1m"}}`,
		want: `ipam.coolDown = "1m": want a whole number`},
	{name: "cool-down too long", conf: `{"cniVersion": "1.1.0", "name": "n", "type": "ptp", "ipam": {"type": "fairlead-ipam", "coolDown": 99999999}}`,
		want: `ipam.coolDown = 99999999: want seconds, 0 to 86400`},
	{name: "pool together with addresses", conf: `{"cniVersion": "1.1.0", "name": "n", "type": "ptp", "ipam": {"type": "fairlead-ipam", "pool": "a", "addresses": [{"pool": "b"}]}}`,
		want: `ipam.addresses = [{"pool":"b"}]: cannot be combined with "pool" or "fixed": set these within addresses`},
	{name: "unknown address family", conf: `{"cniVersion": "1.1.0", "name": "n", "type": "ptp", "ipam": {"type": "fairlead-ipam", "addresses": [{"family": 5}]}}`,
		want: `ipam.addresses[0].family = 5: want 4 or 6; without it`},
	{name: "network name is a path", conf: `{"cniVersion": "1.1.0", "name": "n", "type": "ptp", "ipam": {"type": "fairlead-ipam", "network": "../x"}}`,
		want: `ipam.network = "../x": `},
	{name: "whereabouts without the agent", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "whereabouts", "range": "10.1.0.0/24", "gateway": "10.1.0.1"}}`,
		want: `allocate from whereabouts: the agent does not answer at $WORK/run/agent.sock`},
	{name: "static gateway with a zone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "fd00::2/64", "gateway": "fe80::1%eth0"}]}}`,
		want: `ipam.addresses[0].gateway = "fe80::1%eth0": want an address without a zone, like fe80::1`},
	{name: "route gateway with a zone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "fd00::/64", "routes": [{"dst": "fd01::/64", "gw": "fe80::1%eth0"}]}}`,
		want: `ipam.routes[0].gw = "fe80::1%eth0": want an address without a zone`},
	{name: "gateway in CNI_ARGS with a zone", env: "CNI_ARGS=IP=fd00::2/64;GATEWAY=fe80::1%eth0", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "static"}}`,
		want: `CNI_ARGS: GATEWAY=fe80::1%eth0: want an address`},
	{name: "whereabouts gateway with a zone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "whereabouts", "range": "fd00::/64", "gateway": "fd00::1%eth0"}}`,
		want: `ipam.gateway = "fd00::1%eth0": want an address without a zone`},
	{name: "whereabouts address with a gateway of another family", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "whereabouts", "addresses": [{"address": "fd00::2/64", "gateway": "10.1.0.1"}]}}`,
		want: `ipam.addresses[0].gateway = "10.1.0.1": want an address of the same family as fd00::2/64`},
	{name: "sbr gateway with a zone", conf: afterBridge(`{"type": "sbr", "gateways": ["fe80::1%eth0"]}`),
		want: `gateways[0] = "fe80::1%eth0": want an address without a zone`},
	{name: "empty sbr gateway", conf: afterBridge(`{"type": "sbr", "gateways": [""]}`), want: `gateways[0] = "": want an address without a zone`},
	{name: "MAC address in args is a number", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "args": {"cni": {"mac": 5}}, $IPAM}`,
		want: `args.cni.mac = 5: want a string, like "02:00:00:00:00:01"`},
	{name: "args are a list", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "args": {"cni": ["x"]}}`, want: `args.cni = ["x"]: want an object`},
	{name: "whereabouts without a range", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "whereabouts"}}`,
		want: `ipam.range: missing: want a range like "192.168.2.225/28"`},
	{name: "no device", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "host-device", "device": "nosuch0"}`,
		want: `device = "nosuch0": no such device on the host`},
	{name: "device path outside sysfs", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "host-device", "pciBusID": "../../x"}`,
		want: `pciBusID = "../../x": want a device's address on its bus, like 0000:00:1f.6`},
	{name: "dummy without addresses", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "dummy"}`,
		want: `ipam: missing: a dummy interface needs addresses`},
	{name: "bridge MTU too small", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "mtu": 67}`, want: `mtu = 67: want 0 (the kernel's choice) or 68 to 65535 bytes`},
	{name: "ptp MTU too small", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "mtu": 67}`, want: `mtu = 67: want 0 (the kernel's choice) or 68 to 65535 bytes`},
	{name: "tap MTU too small", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "tap", "mtu": 67}`, want: `mtu = 67: want 0 (the kernel's choice, 1500) or 68 to 65521 bytes`},
	{name: "negative tap owner", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "tap", "owner": -1}`, want: `owner = -1: want a user ID from 0 to 4294967294`},
	{name: "tap group out of range", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "tap", "group": 4294967295}`, want: `group = 4294967295: want a group ID from 0 to 4294967294`},
	{name: "tap bridge is another link type", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "tap", "bridge": "lo"}`, want: `bridge = "lo": is not a bridge`},
	{name: "tap bridge name is a path", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "tap", "bridge": "a/b"}`, want: `bridge = "a/b": `},
	{name: "Open vSwitch not running", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ovs", "bridge": "ovs0", "socket_file": "$WORK/no.sock", $IPAM}`,
		want: `Open vSwitch does not answer at $WORK/no.sock: no such file or directory: start it (Debian: "systemctl start openvswitch-switch"), or set socket_file to its database's socket`},
	{name: "Open vSwitch bridge missing", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ovs", "socket_file": "$WORK/no.sock", $IPAM}`,
		want: `bridge: missing: want the name of an Open vSwitch bridge, which is created if it does not exist`},
	{name: "Open vSwitch trunk range start after its end", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ovs", "bridge": "ovs0", "socket_file": "$WORK/no.sock", "trunk": [{"minID": 9, "maxID": 5}], $IPAM}`,
		want: `trunk[0] = {"minID":9,"maxID":5}: minID is greater than maxID`},
	{name: "VXLAN identifier too large", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ovs", "bridge": "ovs0", "socket_file": "$WORK/no.sock", "vxlanID": 16777216, $IPAM}`,
		want: `vxlanID = 16777216: want a VXLAN network identifier from 0 to 16777215`},
	{name: "DHCP daemon not running", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "daemonSocketPath": "$WORK/no.sock"}}`,
		want: `ipam dhcp: no DHCP daemon answers at $WORK/no.sock: no such file or directory: start it with "systemctl start fairlead-dhcp.socket" or "dhcp daemon"`},
	{name: "unknown DHCP option", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "request": [{"option": "nosuch"}]}}`,
		want: `ipam.request[0].option = "nosuch": want a number from 1 to 254, or a name: subnet-mask, routers`},
	{name: "DHCP option reserved for the client", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "provide": [{"option": 53, "value": "x"}]}}`,
		want: `ipam.provide[0].option = 53: only the DHCP client itself may set this option: remove it`},
	{name: "DHCP option too long", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "provide": [{"option": "host-name", "value": "` + strings.Repeat("x", 256) + `"}]}}`,
		want: `: its value is too long: want at most 255 bytes`},
	{name: "negative DHCP priority", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "priority": -4}}`,
		want: `ipam.priority = -4: want 0 (the kernel's default) or a route's metric, up to 4294967295`},
	{name: "DHCP without a family", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "dhcp4": false}}`,
		want: `ipam.dhcp4 = false: no address is requested: set dhcp4, dhcp6 or acceptRA to true`},
	{name: "DHCP socket path too long", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "dhcp", "daemonSocketPath": "/` + strings.Repeat("x", 107) + `"}}`,
		want: `: want the path of a socket, at most 107 bytes`},
	{name: "sysctl outside net", conf: afterBridge(`{"type": "tuning", "sysctl": {"kernel.hostname": "x"}}`),
		want: `sysctl = {"kernel.hostname":"x"}: "kernel.hostname": want a key of the network namespace, which begins with net.`},
	{name: "sysctl path with ..", conf: afterBridge(`{"type": "tuning", "sysctl": {"net/../kernel/hostname": "x"}}`),
		want: `"net/../kernel/hostname": want names separated by dots`},
	{name: "unknown sysctl", conf: afterBridge(`{"type": "tuning", "sysctl": {"net.core.nosuch": "1"}}`),
		want: `sysctl net.core.nosuch in the container: open /proc/sys/net/core/nosuch: no such file or directory`},
	{name: "invalid sysctl value", conf: afterBridge(`{"type": "tuning", "sysctl": {"net.core.somaxconn": "many"}}`),
		want: `sysctl -w net.core.somaxconn=many: write many to /proc/sys/net/core/somaxconn: invalid argument`},
	{name: "negative tuning MTU", conf: afterBridge(`{"type": "tuning", "mtu": -5}`), want: `mtu = -5: want 0 (unchanged) to 65535 bytes`},
	{name: "invalid tuning MAC", conf: afterBridge(`{"type": "tuning", "mac": "no:mac"}`), want: `mac = "no:mac": `},
	{name: "tuning alone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "tuning"}`, want: `tuning must be called as chained plugin`},
	{name: "burst without a rate", conf: afterBridge(`{"type": "bandwidth", "ingressBurst": 1000}`),
		want: `ingressBurst = 1000: a burst needs a rate: set ingressRate too, in bits per second`},
	{name: "rate below 8 bits per second", conf: afterBridge(`{"type": "bandwidth", "egressRate": 5}`),
		want: `egressRate = 5: want 0 (no limit) or 8 to 8796093022208 bits per second`},
	{name: "burst too large", env: `CAP_ARGS={"bandwidth":{"ingressRate":1000000,"ingressBurst":99999999999}}`,
		conf: afterBridge(`{"type": "bandwidth", "capabilities": {"bandwidth": true}}`),
		want: `runtimeConfig.bandwidth.ingressBurst = 99999999999: want at most 34359738360 bits`},
	{name: "negative rate", conf: afterBridge(`{"type": "bandwidth", "egressRate": -1}`), want: `egressRate = -1: want a whole number`},
	{name: "shaped and unshaped subnets", conf: afterBridge(`{"type": "bandwidth", "egressRate": 1000000, "shapedSubnets": ["10.0.0.0/8"], "unshapedSubnets": ["10.1.0.0/16"]}`),
		want: `unshapedSubnets = ["10.1.0.0/16"]: cannot be combined with shapedSubnets`},
	{name: "invalid shaped subnet", conf: afterBridge(`{"type": "bandwidth", "egressRate": 1000000, "shapedSubnets": ["10.0.0.0"]}`),
		want: `shapedSubnets[0] = "10.0.0.0": `},
	{name: "sbr alone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "sbr"}`, want: `sbr must be called as chained plugin`},
	{name: "sbr without an address", conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge"}, {"type": "sbr"}]}`,
		want: `sbr: prevResult has no address on eth0`},
	{name: "sbr table reserved by the kernel", conf: afterBridge(`{"type": "sbr", "table": 255}`), want: `table = 255: want a table from 1 to 4294967295, except 255`},
	{name: "invalid sbr gateway", conf: afterBridge(`{"type": "sbr", "gateways": ["10.1.0"]}`), want: `gateways[0] = "10.1.0": `},
	{name: "flannel without flanneld", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "flannel", "subnetFile": "$WORK/nosuch.env"}`,
		want: `flannel's file for this host does not exist: is flanneld running? open $WORK/nosuch.env`},
	{name: "flannel subnet file without a subnet", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "flannel", "subnetFile": "/etc/hostname"}`,
		want: `/etc/hostname: no FLANNEL_SUBNET and no FLANNEL_IPV6_SUBNET: flanneld has leased no subnet yet`},
	{name: "flannel delegate with a name", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "flannel", "delegate": {"name": "other"}}`,
		want: `delegate.name = "other": is set by flannel: move it out of delegate`},
	{name: "flannel delegate is a string", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "flannel", "delegate": "bridge"}`,
		want: `delegate = "bridge": want an object`},
	{name: "invalid minicni subnet", conf: `{"cniVersion": "0.1.0", "name": "n", "type": "minicni", "subnet": "10.1.0.0/33"}`,
		want: `ipam.subnet = "10.1.0.0/33": `},
	{name: "firewall alone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "firewall"}`, want: `firewall must be called as chained plugin`},
	{name: "unknown firewall backend", conf: afterBridge(`{"type": "firewall", "backend": "pf"}`),
		want: `backend = "pf": want "nftables", "iptables" or "firewalld", or omit it to use whichever manages the host`},
	{name: "unknown ingress policy", conf: afterBridge(`{"type": "firewall", "ingressPolicy": "closed"}`),
		want: `ingressPolicy = "closed": want "open", "same-bridge" or "isolated"`},
	{name: "admin chain is a plugin's chain", conf: afterBridge(`{"type": "firewall", "iptablesAdminChainName": "CNI-FORWARD"}`),
		want: `iptablesAdminChainName = "CNI-FORWARD": want the name of your own chain`},
	{name: "ingress policy without a bridge", conf: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "ptp", $IPAM}, {"type": "firewall", "ingressPolicy": "same-bridge"}]}`,
		want: `ingressPolicy "same-bridge" needs a container on a bridge: prevResult names none`},
	{name: "firewalld not running", env: "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent/bus", conf: afterBridge(`{"type": "firewall", "backend": "firewalld"}`),
		want: `firewalld: system bus at /nonexistent/bus: no such file or directory`},
	{name: "parent missing", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", $IPAM}`,
		want: `master: missing, and the host has no default route whose interface could be used`},
	{name: "unknown parent on the host", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ipvlan", "master": "nosuch0", $IPAM}`,
		want: `master = "nosuch0": no interface nosuch0 in the host`},
	{name: "unknown parent in the container", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "nosuch0", "linkInContainer": true, $IPAM}`,
		want: `master = "nosuch0": no interface nosuch0 in the container`},
	{name: "parent has the interface's name", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "vlan", "vlanId": 5, "master": "eth0", "linkInContainer": true, $IPAM}`,
		want: `master = "eth0": is also the name of the container's new interface: they must differ`},
	{name: "parent name is a path", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "a/b", $IPAM}`, want: `master = "a/b": `},
	{name: "lo as a parent", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "lo", $IPAM}`, want: `lo cannot be the parent of a link of type macvlan`},
	{name: "unknown macvlan mode", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "lo", "mode": "source", $IPAM}`,
		want: `mode = "source": want bridge, private, vepa or passthru`},
	{name: "unknown ipvlan mode", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ipvlan", "master": "lo", "mode": "L2", $IPAM}`,
		want: `mode = "L2": want l2, l3 or l3s`},
	{name: "negative bcqueuelen", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "lo", "bcqueuelen": -1, $IPAM}`,
		want: `bcqueuelen = -1: want 0 (the kernel's choice, 1000) to 4294967295 frames`},
	{name: "bad MAC for a macvlan", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "lo", "mac": "eth0", $IPAM}`, want: `"eth0" is not a hardware address`},
	{name: "MTU larger than any parent's", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "ipvlan", "master": "lo", "mtu": 65536, $IPAM}`,
		want: `mtu = 65536: want 0 (the parent's) to 65535 bytes, and at most the parent's`},
	{name: "vlan without a parent", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "vlan", "vlanId": 5, $IPAM}`,
		want: `master: missing: want the interface to create the VLAN on`},
	{name: "VLAN 4095", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "vlan", "master": "lo", "vlanId": 4095, $IPAM}`,
		want: `vlanId = 4095: want a VLAN ID from 1 to 4094, or 0 for priority-tagged frames`},
	{name: "vrf alone", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "vrf", "vrfname": "blue"}`, want: `vrf must be called as chained plugin`},
	{name: "vrf without a name", conf: afterBridge(`{"type": "vrf"}`), want: `vrfname: `},
	{name: "vrf name too long", conf: afterBridge(`{"type": "vrf", "vrfname": "a-router-with-a-name"}`),
		want: `vrfname = "a-router-with-a-name": interface name is too long`},
	{name: "vrf is another link type", conf: afterBridge(`{"type": "vrf", "vrfname": "lo"}`), want: `vrfname = "lo": lo exists in the container and is not a vrf`},
	{name: "vrf table reserved by the kernel", conf: afterBridge(`{"type": "vrf", "vrfname": "blue", "table": 254}`),
		want: `table = 254: want 0 (a free one) to 4294967295, except the kernel's tables default, main and local (253 to 255)`},
	{name: "unknown key of CNI_ARGS", env: `CNI_ARGS=COLOR=red`, conf: `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`,
		want: `unknown args ["COLOR=red"]`},
}

// afterBridge returns a list of the bridge plugin and another plugin.
func afterBridge(plugin string) string {
	return `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", $IPAM}, ` + plugin + `]}`
}

func TestBadInput(t *testing.T) {
	for _, tt := range invalidInputs {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if conf, same := strings.CutPrefix(tt.prepare, "same "); conf != "" {
				id := "b"
				if same {
					id = "a"
				}
				if out, err := m.cni("add", conf, id, "", "", tt.env); err != nil {
					t.Fatalf("prepare: %s", out)
				}
			}
			before := m.state()
			out, err := m.cni("add", tt.conf, "a", tt.netns, tt.ifname, tt.env)
			want := strings.NewReplacer("$WORK", m.Dir).Replace(tt.want)
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("message (%v):\n%s\nwant:\n%s", err, out, want)
			}
			if strings.HasPrefix(tt.prepare, "same ") {
				return // the state belongs to the first attachment
			}
			// A runtime runs DEL after a failed ADD. That succeeds unless libcni or skel cannot parse the request.
			if out, err := m.cni("del", tt.conf, "a", tt.netns, tt.ifname, tt.env); err != nil && !tt.unreadable {
				t.Errorf("DEL: %s", out)
			}
			d := kerneltest.Diff(before, m.state())
			if d != "" && (!tt.shares || strings.Contains(d, "10.1.0.2") || strings.Contains(d, "FL-DN-")) {
				t.Errorf("left behind:\n%s", d)
			}
		})
	}
}

// machine is the test's host and its containers' namespaces.
type machine struct {
	*kerneltest.Machine
	wrap []string // prefix of every command, or nil
}

func newMachine(t *testing.T) *machine {
	return &machine{Machine: kerneltest.NewMachine(t, "a", "b")}
}

// cni runs the command cni on a configuration and returns its output.
func (m *machine) cni(verb, conf, id, netns, ifname string, env ...string) (string, error) {
	conf = strings.ReplaceAll(conf, "$IPAM", `"ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "10.1.0.0/24"}`)
	conf = strings.ReplaceAll(conf, "$WORK", m.Dir)
	file := filepath.Join(m.Dir, "net.conf")
	if strings.Contains(conf, `"plugins"`) {
		file += "list"
	}
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		m.T.Fatal(err)
	}
	if netns == "" {
		netns = m.Netns[id]
	}
	args := append(append([]string{}, m.wrap...), "cni", verb, file, "NS")
	if ifname != "" {
		args = append(args, ifname)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(m.Env("CNI_PATH="+programs, "NS="+netns, "CONTAINER="+id), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// state returns everything that an attachment may leave: both namespaces and the files, without shared objects and
// allocation cursors.
func (m *machine) state() string {
	s := kerneltest.Dump(m.T, "") + kerneltest.Dump(m.T, m.Netns["a"]) + m.Files("run", "lib/networks", "ipam", "cache")
	return kerneltest.Mask(s, kerneltest.Link("cni0"), kerneltest.Timers, kerneltest.IPv6State)
}
