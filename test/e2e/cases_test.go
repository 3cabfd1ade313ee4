package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// scenario is a case that runs with every client.
type scenario struct {
	name     string
	requires []feature
	long     bool // repeated with fused lists only if FAIRLEAD_E2E is set
	run      func(t *testing.T, s *suite)
}

func scenarios() []scenario {
	return []scenario{
		{"addresses", nil, false, hasAddresses},
		{"pod to pod", nil, false, podToPod},
		{"pod to host and outside", nil, false, toHostAndOut},
		{"host ports", []feature{hostPorts}, false, publishedPorts},
		{"UDP host port, target replaced", []feature{hostPorts}, false, udpReplaced},
		{"UDP host port, target restarted", []feature{hostPorts}, false, udpRestarted},
		{"fixed address", []feature{fixedIP}, false, fixedAddress},
		{"fixed hardware address", []feature{fixedMAC}, false, fixedHardwareAddress},
		{"several networks", []feature{moreNetworks}, false, severalNetworks},
		{"bandwidth set for the pod", []feature{podBandwidth}, true, podBandwidthLimit},
		{"bandwidth set in the list", []feature{chooseNetwork}, true, listBandwidthLimit},
		{"restart", nil, false, containerRestart},
		{"burst of 50", nil, true, burst},
		{"client killed during a burst of 50", nil, true, clientKilledInBurst},
		{"plugin calls", nil, false, recordsPluginCalls},
	}
}

func hasAddresses(t *testing.T, s *suite) {
	ctr := s.run(t, pod{})
	v4, v6 := s.addresses(t, ctr, "eth0")
	if !strings.HasPrefix(v4, firstSubnetV4) || !strings.HasPrefix(v6, "fd00:88::") {
		t.Errorf("addresses %s and %s are outside of the ranges", v4, v6)
	}
	s.remove(t, ctr)
}

func podToPod(t *testing.T, s *suite) {
	a, b := s.run(t, pod{}), s.run(t, pod{})
	a4, a6 := s.addresses(t, a, "eth0")
	b4, b6 := s.addresses(t, b, "eth0")
	for _, network := range []string{"tcp", "udp"} {
		wantAnswer(t, s.from(a), network, at(b4, servePort), b.name, a4)
		wantAnswer(t, s.from(b), network, at(a6, servePort), a.name, b6)
	}
	s.remove(t, a, b)
}

func toHostAndOut(t *testing.T, s *suite) {
	ctr := s.run(t, pod{})
	v4, v6 := s.addresses(t, ctr, "eth0")
	for _, network := range []string{"tcp", "udp"} {
		wantAnswer(t, s.fromHost, network, at(v4, servePort), ctr.name, gatewayV4)
		wantAnswer(t, s.fromHost, network, at(v6, servePort), ctr.name, gatewayV6)
		wantAnswer(t, s.from(ctr), network, at(gatewayV4, hostPort), s.host.name, "")
		wantAnswer(t, s.from(ctr), network, at(gatewayV6, hostPort), s.host.name, "")
		wantAnswer(t, s.from(ctr), network, at(outsideV4, outsidePort), machineName(t), hostV4)
		wantAnswer(t, s.from(ctr), network, at(outsideV6, outsidePort), machineName(t), hostV6)
	}
	s.remove(t, ctr)
}

func tcpAndUDP(host int) []port {
	return []port{{host, servePort, "tcp"}, {host, servePort, "udp"}}
}

func publishedPorts(t *testing.T, s *suite) {
	ctr, other := s.run(t, pod{ports: tcpAndUDP(18080)}), s.run(t, pod{})
	for _, network := range []string{"tcp", "udp"} {
		wantAnswer(t, s.fromOutside, network, at(hostV4, 18080), ctr.name, outsideV4)
		wantAnswer(t, s.fromOutside, network, at(hostV6, 18080), ctr.name, outsideV6)
		for _, ip := range []string{hostV4, hostV6, gatewayV4, gatewayV6, "127.0.0.1"} {
			wantAnswer(t, s.fromHost, network, at(ip, 18080), ctr.name, "")
		}
		for _, from := range []*container{ctr, other} { // the pod itself: hairpin
			for _, ip := range []string{hostV4, hostV6, gatewayV4, gatewayV6} {
				wantAnswer(t, s.from(from), network, at(ip, 18080), ctr.name, "")
			}
		}
	}
	s.checkHealthy(t)
	s.remove(t, ctr, other)
	if out, err := s.fromOutside("query", "tcp", at(hostV4, 18080)); err == nil {
		t.Errorf("the port of a removed pod answers: %s", out)
	}
}

// udpReplaced replaces a pod whose client never changes its source port. The client keeps a conntrack entry alive that
// leads to the removed pod.
func udpReplaced(t *testing.T, s *suite) {
	ports := []port{{18081, servePort, "udp"}}
	first := s.run(t, pod{ports: ports})
	wantAnswer(t, s.fromOutside, "udp4", at(hostV4, 18081), first.name, outsideV4, outsideV4+":5001")
	wantAnswer(t, s.fromOutside, "udp6", at(hostV6, 18081), first.name, outsideV6, at(outsideV6, 5001))
	wantAnswer(t, s.fromHost, "udp4", at("127.0.0.1", 18081), first.name, "", "127.0.0.1:5002")
	s.remove(t, first)
	second := s.run(t, pod{ports: ports})
	wantAnswer(t, s.fromOutside, "udp4", at(hostV4, 18081), second.name, outsideV4, outsideV4+":5001")
	wantAnswer(t, s.fromOutside, "udp6", at(hostV6, 18081), second.name, outsideV6, at(outsideV6, 5001))
	wantAnswer(t, s.fromHost, "udp4", at("127.0.0.1", 18081), second.name, "", "127.0.0.1:5002")
	s.remove(t, second)
}

func udpRestarted(t *testing.T, s *suite) {
	ctr := s.run(t, pod{ports: []port{{18082, servePort, "udp"}}})
	for range 2 {
		wantAnswer(t, s.fromOutside, "udp4", at(hostV4, 18082), ctr.name, outsideV4, outsideV4+":5003")
		wantAnswer(t, s.fromOutside, "udp6", at(hostV6, 18082), ctr.name, outsideV6, at(outsideV6, 5003))
		if err := s.restart(ctr); err != nil {
			t.Fatal(err)
		}
	}
	wantAnswer(t, s.fromOutside, "udp4", at(hostV4, 18082), ctr.name, outsideV4, outsideV4+":5003")
	s.remove(t, ctr)
}

func fixedAddress(t *testing.T, s *suite) {
	const want = "10.88.7.7"
	ctr := s.run(t, pod{networks: []string{network}, ip: want})
	if v4, _ := s.addresses(t, ctr, "eth0"); v4 != want {
		t.Errorf("address is %s, want %s", v4, want)
	}
	wantAnswer(t, s.fromHost, "tcp", at(want, servePort), ctr.name, "")
	s.remove(t, ctr)
}

func fixedHardwareAddress(t *testing.T, s *suite) {
	const want = "02:11:22:33:44:55"
	ctr := s.run(t, pod{networks: []string{network}, mac: want})
	l, err := links(s.client, ctr)
	if err != nil || !slices.ContainsFunc(l, func(l link) bool { return l.Name == "eth0" && l.MAC == want }) {
		t.Errorf("no eth0 with %s: %+v (%v)", want, l, err)
	}
	v4, _ := s.addresses(t, ctr, "eth0")
	wantAnswer(t, s.fromHost, "tcp", at(v4, servePort), ctr.name, "")
	s.remove(t, ctr)
}

// severalNetworks attaches pods to two networks. With CRI the node's configuration decides that, so it needs a second
// host.
func severalNetworks(t *testing.T, s *suite) {
	if node, ok := s.client.(interface{ withNetworks(n int) client }); ok {
		c := node.withNetworks(2)
		s = newSuite(t, c, s.programs, lists(c.spec()), s.fuse)
		defer s.checkUnchanged(t)
	}
	a := s.run(t, pod{networks: []string{network, secondNetwork}})
	b := s.run(t, pod{networks: []string{network, secondNetwork}, ports: []port{{18083, servePort, "tcp"}}})
	for _, name := range []string{"eth0", "eth1"} {
		b4, b6 := s.addresses(t, b, name)
		a4, a6 := s.addresses(t, a, name)
		wantAnswer(t, s.from(a), "tcp", at(b4, servePort), b.name, a4)
		wantAnswer(t, s.from(a), "tcp", at(b6, servePort), b.name, a6)
	}
	wantAnswer(t, s.fromOutside, "tcp", at(hostV4, 18083), b.name, "")
	s.checkHealthy(t)
	s.remove(t, a, b)
}

func containerRestart(t *testing.T, s *suite) {
	ctr := s.run(t, pod{ports: tcpAndUDP(18084)})
	for range 3 {
		if err := s.restart(ctr); err != nil {
			t.Fatal(err)
		}
		v4, v6 := s.addresses(t, ctr, "eth0")
		wantAnswer(t, s.fromHost, "tcp", at(v4, servePort), ctr.name, "")
		wantAnswer(t, s.fromHost, "tcp", at(v6, servePort), ctr.name, "")
		wantAnswer(t, s.fromOutside, "tcp", at(hostV6, 18084), ctr.name, outsideV6)
	}
	if all, err := links(s.client, ctr); err != nil || len(all) != 1 {
		t.Errorf("links after a restart: %+v (%v)", all, err)
	}
	s.remove(t, ctr)
}

func podBandwidthLimit(t *testing.T, s *suite) {
	const rate = 32_000_000
	s.measure(t, s.run(t, pod{rate: rate}), rate)
}

func listBandwidthLimit(t *testing.T, s *suite) {
	s.measure(t, s.run(t, pod{networks: []string{slowNetwork}}), slowRate)
}

// measure checks the bandwidth of a pod in both directions, and removes the pod.
func (s *suite) measure(t *testing.T, ctr *container, want int) {
	t.Helper()
	v4, _ := s.addresses(t, ctr, "eth0")
	for direction, flood := range map[string]func() (string, error){
		"to the pod":   func() (string, error) { return s.fromHost("flood", net.JoinHostPort(v4, "8080")) },
		"from the pod": func() (string, error) { return s.from(ctr)("flood", at(outsideV4, outsidePort)) },
	} {
		// On a busy machine, the burst may not pass before the measurement. It does not come back for minutes.
		kerneltest.Within(t, 20*time.Second, func() error {
			got, err := parseInt(flood())
			t.Logf("%s: %d bit/s of %d", direction, got, want)
			if err == nil && (got < want*6/10 || got > want*13/10) {
				err = fmt.Errorf("%s: %d bit/s, want about %d", direction, got, want)
			}
			return err
		})
	}
	s.remove(t, ctr)
}
