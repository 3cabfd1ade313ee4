package compat

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// lifecycle is a network with which every operation is run.
type lifecycle struct {
	name    string // plugin, and its variant
	ifname  string // "": eth0
	plugins string // the list's "plugins"
	capArgs string
	prepare func(*host)
	probes  []probe
	needs   string // a feature of kerneltest; "": every kernel can run it
}

// probe is a connection to try while the container is attached.
type probe struct{ from, network, addr string }

// probe records the answer to a probe. Without one, it tries the reference plugin again: on a busy machine, a
// connection through it was seen to get no answer for 40 seconds. Our plugin has one try.
func (r *recorder) probe(p probe) {
	answer := r.dial(p.from, p.network, p.addr)
	if answer == noAnswer && !r.side.ourPlugins {
		answer = r.dial(p.from, p.network, p.addr)
	}
	r.note("from "+p.from+" to "+p.network+" "+p.addr, answer)
}

const dualStack = `"ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd01::/64"}]]`

func lifecycles() []lifecycle {
	ports := `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}]}`
	withPorts := func(backend string) lifecycle {
		return lifecycle{
			name: "portmap, " + backend,
			plugins: `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, ` + dualStack + `}},
				{"type": "portmap", "backend": "` + backend + `", "capabilities": {"portMappings": true}}`,
			capArgs: ports, prepare: (*host).world,
			probes: []probe{
				{"world", "tcp", "192.0.2.1:8080"}, {"world", "tcp", "[2001:db8::1]:8080"}, {"world", "udp", "192.0.2.1:5353"},
				{"host", "tcp", "192.0.2.1:8080"}, {"host", "tcp", "127.0.0.1:8080"}, {"a", "tcp", "10.1.0.1:8080"},
			},
		}
	}
	chained := func(plugin string) string {
		return `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, ` + dualStack + `}}, ` + plugin
	}
	return []lifecycle{
		{name: "loopback", ifname: "lo", plugins: `{"type": "loopback"}`},
		{
			name: "bridge", prepare: (*host).world,
			plugins: `{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "mtu": 1400, "dns": {"nameservers": ["192.0.2.53"], "search": ["example"]}, ` + dualStack + `}}`,
			probes:  []probe{{"a", "tcp", "192.0.2.9:7"}, {"a", "tcp", "[2001:db8::9]:7"}, {"host", "tcp", "10.1.0.2:80"}, {"host", "tcp", "[fd01::2]:80"}},
		},
		{
			name: "ptp", prepare: (*host).world,
			plugins: `{"type": "ptp", "ipMasq": true, "mtu": 1400, ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}`,
			probes:  []probe{{"a", "tcp", "192.0.2.9:7"}, {"a", "tcp", "[2001:db8::9]:7"}, {"host", "tcp", "10.1.0.2:80"}, {"host", "tcp", "[fd01::2]:80"}},
		},
		{
			name: "host-device", prepare: device,
			plugins: `{"type": "host-device", "device": "dev0", "ipam": {"type": "static", "addresses": [{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}`,
			probes:  []probe{{"a", "tcp", "10.2.0.9:7"}},
		},
		{
			name: "macvlan", prepare: parent,
			plugins: `{"type": "macvlan", "master": "up0", "mtu": 1400, ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}]}}`,
			probes:  []probe{{"a", "tcp", "10.1.0.9:7"}, {"a", "tcp", "[fd01::9]:7"}},
		},
		{
			name: "ipvlan", prepare: parent, needs: "ipvlan",
			plugins: `{"type": "ipvlan", "master": "up0", "mtu": 1400, ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}]}}`,
			probes:  []probe{{"a", "tcp", "10.1.0.9:7"}, {"a", "tcp", "[fd01::9]:7"}},
		},
		{
			name: "vlan", prepare: vlanParent, needs: "vlan",
			plugins: `{"type": "vlan", "master": "up0", "vlanId": 100, "mtu": 1400, ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}]}}`,
			probes:  []probe{{"a", "tcp", "10.1.0.9:7"}, {"a", "tcp", "[fd01::9]:7"}},
		},
		{name: "tap", plugins: `{"type": "tap", "mtu": 1400, "multiQueue": true, ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}]}}`},
		{name: "dummy", needs: "dummy", plugins: `{"type": "dummy", ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}]}}`},
		{name: "host-local", plugins: `{"type": "host-local", ` + dualStack + `, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "fd00::/8", "gw": "fd01::9"}]}}`},
		{name: "static", plugins: `{"type": "static", "ipam": {"type": "static", "addresses": [{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}, {"address": "fd02::5/64"}],
			"routes": [{"dst": "0.0.0.0/0", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 100, "scope": 0}], "dns": {"nameservers": ["192.0.2.53"], "domain": "example", "search": ["example"], "options": ["ndots:2"]}}}`},
		{
			name: "dhcp", prepare: dhcp("--dhcp-option=3,10.0.0.1"), probes: []probe{{"a", "tcp", "10.0.0.1:7"}},
			plugins: `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "dhcp", "daemonSocketPath": "$DIR/dhcp.sock", "priority": 7}}`,
		},
		{
			name: "bandwidth", plugins: chained(`{"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 16000000, "egressBurst": 800000}`),
			probes: []probe{{"host", "tcp", "10.1.0.2:80"}},
		},
		{
			name: "firewall", prepare: (*host).world, plugins: chained(`{"type": "firewall", "ingressPolicy": "same-bridge"}`),
			probes: []probe{{"a", "tcp", "192.0.2.9:7"}, {"host", "tcp", "10.1.0.2:80"}},
		},
		{name: "sbr", plugins: chained(`{"type": "sbr"}`), probes: []probe{{"host", "tcp", "10.1.0.2:80"}}},
		{
			name: "tuning", plugins: chained(`{"type": "tuning", "mac": "02:00:00:00:00:05", "mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}`),
			probes: []probe{{"host", "tcp", "10.1.0.2:80"}},
		},
		{name: "vrf", needs: "vrf", plugins: chained(`{"type": "vrf", "vrfname": "blue"}`)},
		withPorts("nftables"),
		withPorts("iptables"),
	}
}

// device creates dev0 on the host, with its peer in the world.
func device(h *host) {
	h.container("world")
	h.ip("host", "link add dev0 type veth peer name eth0 netns "+h.Netns["world"], "link set dev0 up address 02:00:00:00:00:05")
	h.ip("world", "addr add 10.2.0.9/24 dev eth0", "link set eth0 up")
	h.serve("world", "tcp", ":7")
}

// addressedDevice is device with addresses, routes and rules of the host on dev0.
func addressedDevice(h *host) {
	device(h)
	h.ip("host", "addr add 10.2.0.5/24 dev dev0", "addr add 10.2.0.6/24 dev dev0", "addr add fd02::5/64 dev dev0 nodad",
		"route add default via 10.2.0.9 dev dev0 metric 50", "route add 10.5.0.0/16 via 10.2.0.9 dev dev0 src 10.2.0.6",
		"route add 10.6.0.1/32 dev dev0", "route add 10.7.0.0/16 via 10.2.0.9 dev dev0 table 77",
		"route add fd05::/64 via fd02::9 dev dev0", "rule add from 10.2.0.6 table 77 priority 99", "rule add from 10.9.0.1 table 77 priority 98")
}

// parent creates up0 on the host. Its peer in the world has addresses in the containers' subnets.
func parent(h *host) {
	h.container("world")
	h.ip("host", "link add up0 type veth peer name eth0 netns "+h.Netns["world"], "link set up0 up address 02:00:00:00:00:05")
	h.ip("world", "addr add 10.1.0.9/24 dev eth0", "addr add fd01::9/64 dev eth0 nodad", "link set eth0 up")
	h.serve("world", "tcp", ":7")
}

// vlanParent is like parent, with the world's addresses in VLAN 100.
func vlanParent(h *host) {
	parent(h)
	h.ip("world", "addr flush dev eth0", "link add link eth0 name v100 type vlan id 100",
		"addr add 10.1.0.9/24 dev v100", "addr add fd01::9/64 dev v100 nodad", "link set v100 up")
}

func (l lifecycle) list(version string) string {
	return `{"cniVersion": "` + version + `", "name": "net", "plugins": [` + l.plugins + `]}`
}

// run runs all operations of an attachment's life on a host.
func (l lifecycle) run(t testing.TB, s side, version string) transcript {
	h := newSideHost(t, s)
	r := &recorder{host: h, keep: l.plugins + " 02:00:00:00:00:05"}
	if l.prepare != nil {
		l.prepare(h)
	}
	h.container("a")
	if l.ifname != "lo" {
		h.ip("a", "link set lo up") // without it, the container has no IPv6 address of its own
	}
	h.write(l.list(version))
	c := call{netns: "a", ifname: l.ifname, capArgs: l.capArgs}
	with := func(verb string) call { c.verb = verb; return c }
	r.note(beforeStep+"a", r.snapshot("a"))
	r.do(with("add"))
	r.recordState("added", "host", "a")
	if l.probes != nil {
		h.serve("a", "tcp", ":80")
		h.serve("a", "udp", ":53")
	}
	for _, p := range l.probes {
		r.probe(p)
	}
	if cni.AtLeast(version, "0.4.0") {
		r.do(with("check"))
	}
	if cni.AtLeast(version, "1.1.0") {
		r.do(with("status"))
		r.do(with("gc")) // GC removes the attachment, because cnitool reports none as valid
		r.recordState("collected", "host", "a")
		r.do(with("add"))
	}
	r.do(with("del"))
	r.do(with("del"))
	r.recordState("deleted", "host", "a")
	r.do(with("add"))
	kerneltest.Gone(t, h.Netns["a"])
	if err := os.Remove(h.Netns["a"]); err != nil {
		t.Fatal(err)
	}
	l.afterEnd(r, with("del"))
	return r.transcript
}

// afterEnd runs DEL twice after the namespace has ended. The reference runtime has to pass the namespace's path. Our
// runtime omits CNI_NETNS.
func (l lifecycle) afterEnd(r *recorder, c call) {
	if r.side.ourRuntime {
		c.netns, c.of = "", "a"
	}
	for range 2 {
		_, err := r.call(c)
		if err != nil {
			r.T.Logf("%v: del of an ended container: %v", r.side, err)
		}
		r.note("del of an ended container", map[bool]string{true: "success", false: "error"}[err == nil])
	}
	r.recordState("ended") // the kernel deletes links asynchronously
}
