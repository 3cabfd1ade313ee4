package compat

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const oneOfSeveral = `{"cniVersion": "1.0.0", "name": "$NAME", "plugins": [
	{"type": "bridge", "bridge": "br-$NAME", "isGateway": true, "ipMasq": true, "hairpinMode": true,
	 "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "subnet": "10.1.$N.0/24", "routes": [{"dst": "$ROUTE"}]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}`

// TestPortsOfSeveralNetworks attaches a container to two networks with the same host ports. The ports must work as long
// as one network is attached, in any order of DEL, with the reference plugins and with ours.
func TestPortsOfSeveralNetworks(t *testing.T) {
	for _, s := range sides() {
		for first, name := range networkNames() {
			t.Run(s.String()+", first "+name, func(t *testing.T) {
				t.Parallel()
				h := newSideHost(t, s)
				h.world()
				h.container("a")
				h.ip("a", "link set lo up")
				h.serve("a", "tcp", ":80")
				h.serve("a", "udp", ":53")
				h.severalNetworks()
				do := func(verb string, network int) {
					t.Helper()
					if _, err := h.call(oneNetwork(verb, network)); err != nil {
						t.Fatalf("%s %s: %v", verb, networkNames()[network], err)
					}
				}
				serves := func(network, addr string) {
					t.Helper()
					if answer := h.dial("world", network, addr); answer != "hello 192.0.2.9" {
						t.Errorf("%s %s: %s", network, addr, answer)
					}
				}
				do("add", 0)
				do("add", 1)
				serves("tcp", "192.0.2.1:8080")
				last := 1 - first
				do("del", first)
				serves("tcp", "192.0.2.1:8080")
				serves("udp", "192.0.2.1:53") // the server answers from the address of the remaining network
				do("check", last)
				do("del", last)
				h.wantNoRules()
			})
		}
	}
}

// TestConcurrentDelOfNetworks detaches both networks of a container at the same time. A DEL hands the container's host
// ports to its other network. If that one is being detached as well, no rule may be left.
func TestConcurrentDelOfNetworks(t *testing.T) {
	t.Parallel()
	h := newSideHost(t, side{ourRuntime: true, ourPlugins: true})
	h.container("a")
	h.ip("a", "link set lo up")
	h.severalNetworks()
	for range 8 {
		var done [2]chan error
		for i := range done {
			if _, err := h.call(oneNetwork("add", i)); err != nil {
				t.Fatal(err)
			}
			done[i] = make(chan error, 1)
		}
		for i := range done {
			go func() {
				done[i] <- kerneltest.Inside(h.Netns["host"], func() error { _, err := h.call(oneNetwork("del", i)); return err })
			}()
		}
		for i := range done {
			if err := <-done[i]; err != nil {
				t.Error(err)
			}
		}
		h.wantNoRules()
	}
}

// severalNetworks writes two networks. The first has the default route.
func (h *host) severalNetworks() {
	h.T.Helper()
	for i, route := range []string{"0.0.0.0/0", "192.0.2.0/28"} {
		r := strings.NewReplacer("$NAME", networkNames()[i], "$N", string(rune('1'+i)), "$ROUTE", route, "$DIR", h.Dir)
		h.file("net.d/"+networkNames()[i]+".conflist", r.Replace(oneOfSeveral))
	}
}

func networkNames() []string { return []string{"net", "other"} }

func oneNetwork(verb string, i int) call {
	return call{verb: verb, netns: "a", network: networkNames()[i], ifname: []string{"eth0", "eth1"}[i], capArgs: `{"portMappings": [
		{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 53, "containerPort": 53, "protocol": "udp"}]}`}
}

// wantNoRules fails if a rule or an element contains an address of a container.
func (h *host) wantNoRules() {
	h.T.Helper()
	if left := regexp.MustCompile(`.*\b10\.1\.[12]\.([2-9]|1[0-9])\b.*`).FindAllString(h.left(), -1); left != nil {
		h.T.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
}
