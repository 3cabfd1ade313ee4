package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// across is a way to connect two hosts, with Fairlead and with manual ip commands.
type across struct {
	conf   cluster.Backend
	mtu    int    // MTU of containers
	needs  string // required link type
	manual string // manual commands on a host: $N is its number, $P its peer's; addresses are derived from them
}

// ways returns all ways. Hosts have the numbers 1 and 2. Each has the underlay eth0 with 192.0.2.N, the container block
// 10.244.N.0/26, and the link c0.
func ways() []across {
	return []across{
		{cluster.Backend{Type: cluster.HostGW}, 1500, "", `ip route add 10.244.$P.0/26 via 192.0.2.$P dev eth0`},
		{cluster.Backend{Type: cluster.VXLAN}, 1450, "vxlan", `
			ip link add vx0 address 02:00:00:00:00:0$N mtu 1450 type vxlan id 1 local 192.0.2.$N dev eth0 dstport 8472 nolearning
			ip addr add 10.244.$N.0/32 dev vx0; ip link set vx0 up
			ip neigh add 10.244.$P.0 lladdr 02:00:00:00:00:0$P dev vx0 nud permanent
			bridge fdb append 02:00:00:00:00:0$P dev vx0 dst 192.0.2.$P self permanent
			ip route add 10.244.$P.0/26 via 10.244.$P.0 dev vx0 onlink`},
		{cluster.Backend{Type: cluster.WireGuard}, 1440, "wireguard", `
			ip link add wg0 mtu 1440 type wireguard
			wg set wg0 listen-port 51820 private-key $KEYS/$N peer $(wg pubkey < $KEYS/$P) endpoint 192.0.2.$P:51820 allowed-ips 10.244.$P.0/26
			ip addr add 10.244.$N.0/32 dev wg0; ip link set wg0 up; ip route add 10.244.$P.0/26 dev wg0`},
		{cluster.Backend{Type: cluster.IPIP}, 1480, "ipip", `
			ip link add tun1 mtu 1480 type ipip local 192.0.2.$N remote any ttl 64
			ip addr add 10.244.$N.0/32 dev tun1; ip link set tun1 up; ip route add 10.244.$P.0/26 via 192.0.2.$P dev tun1 onlink`},
	}
}

// betweenHosts measures every backend that the kernel has, from a container on one host to a container on the other.
func betweenHosts(o options) (rows []row, err error) {
	for _, w := range ways() {
		if o.backend != "" && o.backend != w.conf.Type {
			continue
		}
		if w.needs != "" && !linkType(w.needs) {
			fmt.Fprintf(os.Stderr, "%s: this kernel has no links of type %s\n", w.conf.Type, w.needs)
			continue
		}
		pair, err := w.pair()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.conf.Type, err)
		}
		for _, what := range []string{"stream", "rr", "connect"} {
			if o.what != "" && o.what != what {
				continue
			}
			r, err := measure(pair, pathCase{way: w.conf.Type, from: "a", addr: "10.244.2.2", port: echoPort, what: what}, o, 0)
			if err != nil {
				return nil, err
			}
			rows = append(rows, r...)
		}
	}
	return rows, nil
}

// linkType reports whether the kernel has links of a type.
func linkType(typ string) bool {
	argv := []string{"ip", "link", "add", "try-" + typ, "type", typ}
	switch typ {
	case "vxlan":
		argv = append(argv, "id", "9", "dstport", "9")
	case "ipip": // without an endpoint it would be tunl0, which exists already
		argv = append(argv, "local", "192.0.2.9")
	}
	_, err := output(exec.Command(argv[0], argv[1:]...))
	return err == nil
}

// pair creates both contenders.
func (w across) pair() ([]host, error) {
	pair := []host{{name: "manual", of: w.conf.Type}, {name: "Fairlead", of: w.conf.Type}}
	keys, err := w.keys()
	if err != nil {
		return nil, err
	}
	for _, h := range pair {
		if err := w.hosts(h); err != nil {
			return nil, err
		}
		for n := 1; n <= 2; n++ {
			if h.name == "manual" {
				_, err = h.sh(fmt.Sprint(n), strings.NewReplacer("$N", fmt.Sprint(n), "$P", fmt.Sprint(3-n), "$KEYS", keys).Replace(w.manual))
			} else {
				err = w.ours(h, n, keys)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := h.serveAt("b"); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Second)
	return pair, nil
}

// hosts creates two hosts on a link, "1" and "2", with containers "a" and "b".
func (w across) hosts(h host) error {
	for _, which := range []string{"1", "2", "a", "b"} {
		if _, err := output(exec.Command("ip", "netns", "add", h.ns(which))); err != nil {
			return err
		}
		if _, err := h.sh(which, "ip link set lo up; sysctl -qw net.ipv4.ip_forward=1"); err != nil {
			return err
		}
	}
	if _, err := h.sh("1", "ip link add eth0 type veth peer name eth0 netns "+h.ns("2")); err != nil {
		return err
	}
	for n, container := range map[int]string{1: "a", 2: "b"} {
		_, err := h.sh(fmt.Sprint(n), fmt.Sprintf(`ip addr add 192.0.2.%d/24 dev eth0; ip link set eth0 up
			ip link add c0 mtu %d type veth peer name eth0 mtu %d netns %s; ip addr add 10.244.%d.1/26 dev c0; ip link set c0 up`, n, w.mtu, w.mtu, h.ns(container), n))
		if err == nil {
			_, err = h.sh(container, fmt.Sprintf(`ip addr add 10.244.%d.2/26 dev eth0; ip link set eth0 up; ip route add default via 10.244.%d.1`, n, n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keys creates a directory with both hosts' WireGuard private keys, named by number.
func (w across) keys() (string, error) {
	dir, err := os.MkdirTemp("/run", "keys")
	for n := 1; n <= 2 && err == nil; n++ {
		_, _, err = backend.Keys{File: fmt.Sprint(dir, "/", n)}.Rotate(time.Now(), 0)
	}
	return dir, err
}

// ours applies the agent's objects in a host.
func (w across) ours(h host, n int, keys string) error {
	node := func(n int) (*cluster.Node, []netip.Prefix) {
		out := &cluster.Node{Name: fmt.Sprint("n", n), Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 24)}}
		out.WireGuard, _, _ = backend.Keys{File: fmt.Sprint(keys, "/", n)}.Rotate(time.Now(), 0) // the key was read before
		return out, []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n), 0}), 26)}
	}
	self, blocks := node(n)
	peer, dst := node(3 - n)
	r := backend.Compile(backend.Input{
		Network: &cluster.Network{Name: cluster.DefaultNetwork, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.244.0.0/16")}}, Backends: []cluster.Backend{w.conf}},
		Self:    self, Blocks: blocks, Underlay: backend.Underlay{Link: "eth0", MTU: 1500}, KeyFile: fmt.Sprint(keys, "/", n), Peers: []backend.Peer{{Node: peer, Dst: dst}},
	})
	if len(r.Problems) > 0 || r.MTU != w.mtu {
		return fmt.Errorf("problems %v, MTU %d", r.Problems, r.MTU)
	}
	ns, err := netns.Open("/run/netns/" + h.ns(fmt.Sprint(n)))
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		e, err := kernel.Open(nil, kernel.Options{})
		if err != nil {
			return err
		}
		defer e.Close()
		k := reconcile.Owner{Protocol: backend.Protocol, Alias: backend.LinkAlias(""), Table: backend.Table}
		return reconcile.New(e, kernel.Host, k).Reconcile(r.Objects).Err()
	})
}

const hostsPage = `# Between hosts

` + "`make bench-hosts`" + ` wrote this page. It measures the data-path overhead from a container on one host to a container on
another, for each backend that this kernel has: as the agent configures it, and configured manually with ` + "`ip`" + `, in
turn, $ROUNDS rounds. Streams use iperf3 for two seconds after one second of warm-up. Requests (with both ends on
one processor) and connections run for $TIME each, one at a time. A ratio compares values of one round. Its interval
is the bootstrap interval of the median; an interval that contains 1 shows no difference. Hosts are network
namespaces of one machine, connected by a veth pair. [Backends](backends.md) describes the backends.

Machine: virtual, $CPUS processors, Linux $KERNEL, $GO. Measured on
$MOMENT. Both ends run on one machine, so a stream is bound by its processors.
Compare the ratios, not the absolute values.

$TABLE`
