package e2e

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// scenario is a case that every client goes through.
type scenario struct {
	name  string
	needs []ability
	long  bool // not repeated with fused lists, unless all is asked for
	run   func(t *testing.T, s *stage)
}

func scenarios() []scenario {
	return []scenario{
		{"addresses", nil, false, hasAddresses},
		{"pod to pod", nil, false, podToPod},
		{"to the host and out", nil, false, toHostAndOut},
		{"host ports", nil, false, hostPorts},
		{"UDP host port, target replaced", nil, false, udpReplaced},
		{"UDP host port, target restarted", nil, false, udpRestarted},
		{"fixed address", []ability{fixedIP}, false, fixedAddress},
		{"fixed hardware address", []ability{fixedMAC}, false, fixedHardwareAddress},
		{"several networks", nil, false, severalNetworks},
		{"bandwidth asked for", []ability{ownRate}, true, bandwidthAsked},
		{"bandwidth of the list", []ability{chooseNetwork}, true, bandwidthOfList},
		{"restart", nil, false, restarted},
		{"burst of 50", nil, false, burst},
		{"killed in a burst of 50", nil, true, killedInBurst},
		{"what it asks of plugins", nil, false, whatItAsks},
	}
}

func hasAddresses(t *testing.T, s *stage) {
	in := s.run(t, pod{})
	v4, v6 := s.addresses(t, in, "eth0")
	if !strings.HasPrefix(v4, rangeOfFirst) || !strings.HasPrefix(v6, "fd00:88::") {
		t.Errorf("addresses %s and %s are not of the ranges", v4, v6)
	}
	s.remove(t, in)
}

func podToPod(t *testing.T, s *stage) {
	a, b := s.run(t, pod{}), s.run(t, pod{})
	a4, a6 := s.addresses(t, a, "eth0")
	b4, b6 := s.addresses(t, b, "eth0")
	for _, network := range []string{"tcp", "udp"} {
		s.ask(t, s.from(a), network, at(b4, servePort), b.name, a4)
		s.ask(t, s.from(b), network, at(a6, servePort), a.name, b6)
	}
	s.remove(t, a, b)
}

func toHostAndOut(t *testing.T, s *stage) {
	in := s.run(t, pod{})
	v4, v6 := s.addresses(t, in, "eth0")
	for _, network := range []string{"tcp", "udp"} {
		s.ask(t, s.fromHost, network, at(v4, servePort), in.name, gatewayV4)
		s.ask(t, s.fromHost, network, at(v6, servePort), in.name, gatewayV6)
		s.ask(t, s.from(in), network, at(gatewayV4, hostPort), s.host.name, "")
		s.ask(t, s.from(in), network, at(gatewayV6, hostPort), s.host.name, "")
		s.ask(t, s.from(in), network, at(outsideV4, outsidePort), machineName(t), hostV4)
		s.ask(t, s.from(in), network, at(outsideV6, outsidePort), machineName(t), hostV6)
	}
	s.remove(t, in)
}

func bothProtocols(host int) []port {
	return []port{{host, servePort, "tcp"}, {host, servePort, "udp"}}
}

func hostPorts(t *testing.T, s *stage) {
	in, other := s.run(t, pod{ports: bothProtocols(18080)}), s.run(t, pod{})
	for _, network := range []string{"tcp", "udp"} {
		s.ask(t, s.fromOutside, network, at(hostV4, 18080), in.name, outsideV4)
		s.ask(t, s.fromOutside, network, at(hostV6, 18080), in.name, outsideV6)
		for _, ip := range []string{hostV4, hostV6, gatewayV4, gatewayV6, "127.0.0.1"} {
			s.ask(t, s.fromHost, network, at(ip, 18080), in.name, "")
		}
		for _, from := range []*container{in, other} { // the first is a hairpin
			for _, ip := range []string{hostV4, hostV6, gatewayV4, gatewayV6} {
				s.ask(t, s.from(from), network, at(ip, 18080), in.name, "")
			}
		}
	}
	s.remove(t, in, other)
	if out, err := s.fromOutside("ask", "tcp", at(hostV4, 18080)); err == nil {
		t.Errorf("the port of a removed pod answers: %s", out)
	}
}

// A sender that never changes its port keeps an entry of connection tracking
// alive, which leads to a pod that is gone.
func udpReplaced(t *testing.T, s *stage) {
	ports := []port{{18081, servePort, "udp"}}
	first := s.run(t, pod{ports: ports})
	s.ask(t, s.fromOutside, "udp4", at(hostV4, 18081), first.name, outsideV4, outsideV4+":5001")
	s.ask(t, s.fromOutside, "udp6", at(hostV6, 18081), first.name, outsideV6, at(outsideV6, 5001))
	s.ask(t, s.fromHost, "udp4", at("127.0.0.1", 18081), first.name, "", "127.0.0.1:5002")
	s.remove(t, first)
	second := s.run(t, pod{ports: ports})
	s.ask(t, s.fromOutside, "udp4", at(hostV4, 18081), second.name, outsideV4, outsideV4+":5001")
	s.ask(t, s.fromOutside, "udp6", at(hostV6, 18081), second.name, outsideV6, at(outsideV6, 5001))
	s.ask(t, s.fromHost, "udp4", at("127.0.0.1", 18081), second.name, "", "127.0.0.1:5002")
	s.remove(t, second)
}

func udpRestarted(t *testing.T, s *stage) {
	in := s.run(t, pod{ports: []port{{18082, servePort, "udp"}}})
	for range 2 {
		s.ask(t, s.fromOutside, "udp4", at(hostV4, 18082), in.name, outsideV4, outsideV4+":5003")
		s.ask(t, s.fromOutside, "udp6", at(hostV6, 18082), in.name, outsideV6, at(outsideV6, 5003))
		if err := s.restart(in); err != nil {
			t.Fatal(err)
		}
	}
	s.ask(t, s.fromOutside, "udp4", at(hostV4, 18082), in.name, outsideV4, outsideV4+":5003")
	s.remove(t, in)
}

func fixedAddress(t *testing.T, s *stage) {
	const want = "10.88.7.7"
	in := s.run(t, pod{networks: []string{network}, ip: want})
	if v4, _ := s.addresses(t, in, "eth0"); v4 != want {
		t.Errorf("has %s, asked for %s", v4, want)
	}
	s.ask(t, s.fromHost, "tcp", at(want, servePort), in.name, "")
	s.remove(t, in)
}

func fixedHardwareAddress(t *testing.T, s *stage) {
	const want = "02:11:22:33:44:55"
	in := s.run(t, pod{networks: []string{network}, mac: want})
	l, err := links(s.client, in)
	if err != nil || !slices.ContainsFunc(l, func(l link) bool { return l.Name == "eth0" && l.MAC == want }) {
		t.Errorf("asked for %s: %+v (%v)", want, l, err)
	}
	v4, _ := s.addresses(t, in, "eth0")
	s.ask(t, s.fromHost, "tcp", at(v4, servePort), in.name, "")
	s.remove(t, in)
}

// In CRI it is the node that has several networks: another stage.
func severalNetworks(t *testing.T, s *stage) {
	if node, ok := s.client.(interface{ withNetworks(n int) client }); ok {
		c := node.withNetworks(2)
		s = newStage(t, c, s.programs, lists(c.spec()), s.fuse)
		defer s.asBefore(t)
	}
	a := s.run(t, pod{networks: []string{network, secondOne}})
	b := s.run(t, pod{networks: []string{network, secondOne}, ports: []port{{18083, servePort, "tcp"}}})
	for _, name := range []string{"eth0", "eth1"} {
		b4, b6 := s.addresses(t, b, name)
		a4, a6 := s.addresses(t, a, name)
		s.ask(t, s.from(a), "tcp", at(b4, servePort), b.name, a4)
		s.ask(t, s.from(a), "tcp", at(b6, servePort), b.name, a6)
	}
	s.ask(t, s.fromOutside, "tcp", at(hostV4, 18083), b.name, "")
	s.remove(t, a, b)
}

func restarted(t *testing.T, s *stage) {
	in := s.run(t, pod{ports: bothProtocols(18084)})
	for range 3 {
		if err := s.restart(in); err != nil {
			t.Fatal(err)
		}
		v4, v6 := s.addresses(t, in, "eth0")
		s.ask(t, s.fromHost, "tcp", at(v4, servePort), in.name, "")
		s.ask(t, s.fromHost, "tcp", at(v6, servePort), in.name, "")
		s.ask(t, s.fromOutside, "tcp", at(hostV6, 18084), in.name, outsideV6)
	}
	if all, err := links(s.client, in); err != nil || len(all) != 1 {
		t.Errorf("links after a restart: %+v (%v)", all, err)
	}
	s.remove(t, in)
}

func bandwidthAsked(t *testing.T, s *stage) {
	const rate = 32_000_000
	s.measure(t, s.run(t, pod{rate: rate}), rate)
}

func bandwidthOfList(t *testing.T, s *stage) {
	s.measure(t, s.run(t, pod{networks: []string{slowOne}}), slowRate)
}

// measure floods a pod and lets it flood the host's neighbour.
func (s *stage) measure(t *testing.T, in *container, want int) {
	t.Helper()
	v4, _ := s.addresses(t, in, "eth0")
	for way, ask := range map[string]func() (string, error){
		"to the pod":   func() (string, error) { return s.fromHost("flood", net.JoinHostPort(v4, "8080")) },
		"from the pod": func() (string, error) { return s.from(in)("flood", at(outsideV4, outsidePort)) },
	} {
		var have int
		eventually(t, 5*time.Second, func() (err error) { have, err = number(ask()); return err })
		t.Logf("%s: %d bit/s of %d", way, have, want)
		if have < want*6/10 || have > want*13/10 {
			t.Errorf("%s: %d bit/s, want about %d", way, have, want)
		}
	}
	s.remove(t, in)
}
