package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestForwardingKeepsZero checks that an uplink whose advertisements a program handles (accept_ra 0) stays as it is, and
// that this is no difference.
func TestForwardingKeepsZero(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{"0": "0", "1": "2", "2": "2"} {
		t.Run(have, func(t *testing.T) {
			t.Parallel()
			list := kernel.Forwarding(kernel.Host, true, []string{"br0"})
			e := wantAcceptRA(t, have, want, list)
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.br0.accept_ra=0")
			if d, err := e.Compare(list); err != nil || len(d) > 0 {
				t.Errorf("with accept_ra 0: %v\n%s", err, words(d))
			}
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.br0.accept_ra=1")
			if d, err := e.Compare(list); err != nil || len(d) != 1 {
				t.Errorf("with accept_ra 1: %v\n%s", err, words(d))
			}
		})
	}
}

// TestLoopbackOpensAfterRules checks that a link reaches services on 127.0.0.1 only once the rules that close them exist.
func TestLoopbackOpensAfterRules(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	e := open(t, "", kernel.Options{})
	opens := &kernel.Sysctl{Key: "net/ipv4/conf/br0/route_localnet", Value: "1", IsShared: true}
	rule := part("rule", "absent", "drop") // its chain does not exist
	value := func() string {
		return strings.TrimSpace(kerneltest.Run(t, "sysctl", "-n", "net.ipv4.conf.br0.route_localnet"))
	}
	if err := e.Apply(kernel.Objects{opens, rule}); err == nil || value() != "0" {
		t.Errorf("without its rules (%v), route_localnet is %s", err, value())
	}
	if err := e.Apply(kernel.Objects{opens}); err != nil || value() != "1" {
		t.Errorf("%v, route_localnet is %s", err, value())
	}
}
