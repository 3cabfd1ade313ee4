package security

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// serve starts a server that answers every connection with a word.
func (m *machine) serve(netns, addr, word string) {
	m.T.Helper()
	err := kerneltest.Inside(netns, func() error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		m.T.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(word))
				_ = c.Close()
			}
		}()
		return nil
	})
	if err != nil {
		m.T.Fatal(err)
	}
}

// query returns the answer of the server at an address, or "" without one.
func (m *machine) query(netns, addr string) (word string) {
	m.T.Helper()
	err := kerneltest.Inside(netns, func() error {
		c, err := net.DialTimeout("tcp", addr, kerneltest.Slow(time.Second))
		if err != nil {
			return nil
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(kerneltest.Slow(time.Second)))
		b := make([]byte, 64)
		n, _ := c.Read(b)
		word = string(b[:n])
		return nil
	})
	if err != nil {
		m.T.Fatal(err)
	}
	return word
}

const (
	plain  = `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM}`
	mapped = `{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-chain", "plugins": [
		{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM}, {"type": "portmap", "backend": "$BACKEND", "capabilities": {"portMappings": true}}],
		"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}, {"hostPort": 8081, "containerPort": 80, "hostIP": "127.0.0.1"}]}}`
)

// forEachBackend runs a test with host ports in nftables and in iptables. The test gets the configuration of the
// container with host ports.
func forEachBackend(t *testing.T, test func(t *testing.T, m *machine, mapped string)) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			conf := strings.ReplaceAll(mapped, "$BACKEND", backend)
			test(t, newMachineWithOutside(t, conf), conf)
		})
	}
}

// newMachineWithOutside creates a host with two containers, the first with host ports, and an outside neighbour at
// 192.0.2.9 and 2001:db8::9.
func newMachineWithOutside(t *testing.T, mapped string) *machine {
	t.Helper()
	m := newMachine(t, "a", "b", "world")
	m.serve("", ":0", "") // Go checks for IPv6 only once per process: make it check now, while lo is up
	outside := m.Netns["world"]
	kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", outside)
	for _, c := range []string{"addr add 192.0.2.1/24 dev up0", "addr add 2001:db8::1/64 dev up0 nodad", "link set up0 up"} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	for _, c := range []string{"addr add 192.0.2.9/24 dev eth0", "addr add 2001:db8::9/64 dev eth0 nodad", "link set eth0 up", "-6 route add default via 2001:db8::1"} {
		kerneltest.In(t, outside, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	m.must("ADD", "fairlead-chain", "a", mapped)
	m.must("ADD", "bridge", "b", plain)
	m.serve(m.Netns["a"], ":80", "a")
	m.serve(m.Netns["b"], ":80", "b")
	waitForAddress(t, "up0")
	return m
}

// TestHostPortOnlyOnHostAddresses covers CVE-2025-67499: a mapping of host port 8080 redirected every forwarded
// connection to port 8080, whatever its destination.
func TestHostPortOnlyOnHostAddresses(t *testing.T) {
	forEachBackend(t, func(t *testing.T, m *machine, _ string) {
		m.serve(m.Netns["world"], ":8080", "world")
		m.serve(m.Netns["b"], ":8080", "b's own")
		for _, tt := range []struct{ from, to, want string }{
			{"b", "192.0.2.9:8080", "world"},
			{"b", "[2001:db8::9]:8080", "world"},
			{"world", "192.0.2.1:8080", "a"},
			{"b", "192.0.2.1:8080", "a"},
			{"world", "[2001:db8::1]:8080", "a"},
			{"a", "10.1.0.3:8080", "b's own"},
		} {
			if got := m.query(m.Netns[tt.from], tt.to); got != tt.want {
				t.Errorf("%s connects to %s: answer %q, want %q", tt.from, tt.to, got, tt.want)
			}
		}
		if got := m.query("", "10.1.0.3:8080"); got != "b's own" {
			t.Errorf("the host connects to 10.1.0.3:8080: answer %q", got)
		}
	})
}

// TestHostPortAfterServices covers CVE-2019-9946: host port rules were inserted before a cluster's service rules, at
// the head of the same chain.
func TestHostPortAfterServices(t *testing.T) {
	forEachBackend(t, func(t *testing.T, m *machine, mapped string) {
		if strings.Contains(mapped, "iptables") {
			m.must("DEL", "fairlead-chain", "a", mapped) // the first rule of a chain wins, and services exist before a node's pods
			kerneltest.Run(t, "sh", "-c", "iptables -t nat -D PREROUTING -m addrtype --dst-type LOCAL -j FL-HOSTPORT")
			kerneltest.Run(t, strings.Fields("iptables -t nat -A PREROUTING -d 192.0.2.1 -p tcp --dport 8080 -j DNAT --to 10.1.0.3:80")...)
			m.must("ADD", "fairlead-chain", "a", mapped)
		} else {
			kerneltest.Run(t, "nft", "add table ip services; add chain ip services c { type nat hook prerouting priority -100; }; "+
				"add rule ip services c ip daddr 192.0.2.1 tcp dport 8080 dnat to 10.1.0.3:80")
		}
		if got := m.query(m.Netns["world"], "192.0.2.1:8080"); got != "b" {
			t.Errorf("%q answers instead of the service", got)
		}
		m.must("DEL", "fairlead-chain", "a", mapped) // a rule that is added later must not win either
		m.must("ADD", "fairlead-chain", "a", mapped)
		if got := m.query(m.Netns["world"], "192.0.2.1:8080"); got != "b" {
			t.Errorf("after another ADD %q answers instead of the service", got)
		}
	})
}

// TestLoopbackServices covers CVE-2020-8558: route_localnet, which mappings on 127.0.0.1 need, let neighbours connect
// to services that listen only on loopback.
func TestLoopbackServices(t *testing.T) {
	forEachBackend(t, func(t *testing.T, m *machine, mapped string) {
		m.serve("", "127.0.0.1:9999", "a secret")
		if got := m.query("", "127.0.0.1:8081"); got != "a" {
			t.Errorf("the mapping on 127.0.0.1 answers %q", got)
		}
		for name, gateway := range map[string]string{"b": "10.1.0.1", "world": "192.0.2.1"} {
			ns := m.Netns[name]
			kerneltest.In(t, ns, "sysctl", "-qw", "net.ipv4.conf.eth0.route_localnet=1")
			kerneltest.In(t, ns, "ip", "route", "add", "127.0.0.1", "via", gateway)
			if got := m.query(ns, "127.0.0.1:9999"); got != "" {
				t.Errorf("%s receives %q from the host's loopback", name, got)
			}
		}
		// Without the rule the connection succeeds.
		if strings.Contains(mapped, "iptables") {
			kerneltest.Run(t, "iptables", "-w", "-t", "mangle", "-F", "FL-LOOPBACK")
		} else {
			kerneltest.Run(t, "nft", "flush", "chain", "inet", kernel.Table, "loopback")
		}
		if got := m.query(m.Netns["b"], "127.0.0.1:9999"); got != "a secret" {
			t.Errorf("without the rule the answer is %q: the attack does not work in this test", got)
		}
	})
}

// advertisement returns a router advertisement that announces a prefix and its sender as the default router.
func advertisement(src string) []byte {
	body := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	body = append(body, 3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	body = append(body, netip.MustParseAddr("2001:db8:bad::").AsSlice()...)
	p := ipv6(src, allNodes, 58, body, 40+len(body))
	sum := uint32(58 + len(body))
	for _, part := range [][]byte{p[8:40], body} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(p[42:], ^uint16(sum))
	return p
}

// TestRogueRouter covers CVE-2020-10749: on a network without IPv6, a container could become the host's default router.
func TestRogueRouter(t *testing.T) {
	for plugin, link := range map[string]string{"bridge": "cni0", "ptp": ""} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "a", "b")
			v4 := `"ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "10.1.0.0/24"}`
			conf := `{"cniVersion": "1.0.0", "name": "n", "type": "` + plugin + `", ` + v4 + `}`
			own, host := m.hardwareAddresses(m.must("ADD", plugin, "a", conf))
			ipv6Conf := `{"cniVersion": "1.0.0", "name": "six", "type": "` + plugin + `", $IPAM}`
			if link == "" {
				link = strings.Fields(kerneltest.Run(t, "sh", "-c", "ip -br link show type veth | sed 's/@.*//'"))[0]
				kerneltest.Run(t, "ip", "link", "set", link, "up")
			} else {
				m.must("ADD", plugin, "b", ipv6Conf)
			}
			send := func() {
				time.Sleep(kerneltest.Slow(50 * time.Millisecond))
				m.send("a", ethernet(mac(t, "33:33:00:00:00:01"), mac(t, own), 0x86dd, advertisement(linkLocalOf(mac(t, own)))),
					ethernet(mac(t, host), mac(t, own), 0x86dd, advertisement(linkLocalOf(mac(t, own)))))
				time.Sleep(kerneltest.Slow(100 * time.Millisecond))
			}
			acceptedRoutes := func(netns string) string {
				if netns == "" {
					return kerneltest.Run(t, "sh", "-c", "ip -6 route | grep -E '^default|bad' || true")
				}
				return kerneltest.In(t, netns, "sh", "-c", "ip -6 route | grep -E 'via fe80|bad' || true")
			}
			waitForAddress(t, link)
			send()
			if got := acceptedRoutes(""); got != "" {
				t.Errorf("the host accepted a router advertisement from a container:\n%s", got)
			}
			if got := acceptedRoutes(m.Netns["b"]); got != "" {
				t.Errorf("a neighbour accepted a router advertisement from a container:\n%s", got)
			}
			// The advertisement is valid: without the sysctl the host accepts it.
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf."+link+".forwarding=0", "net.ipv6.conf."+link+".accept_ra=2")
			kerneltest.Eventually(t, func() error {
				if send(); acceptedRoutes("") == "" {
					return errors.New("without the sysctl the host does not accept it either: the attack does not work in this test")
				}
				return nil
			})
		})
	}
}

// waitForAddress waits until a link has the link-local address that it needs to accept router advertisements.
func waitForAddress(t *testing.T, link string) {
	t.Helper()
	kerneltest.Until(t, func() bool {
		s := kerneltest.Run(t, "ip", "-6", "-o", "addr", "show", "dev", link, "scope", "link")
		return s != "" && !strings.Contains(s, "tentative")
	})
}
