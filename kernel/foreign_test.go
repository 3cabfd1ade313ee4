package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// A pair that the reference plugin made goes with DEL; anybody else's stays.
func TestRemoveForeignVeth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, host, alias string
		foreign, goes     bool
	}{
		{"the reference's", "veth0123abcd", "", true, true},
		{"not asked for", "veth0123abcd", "", false, false},
		{"another name", "mine0", "", true, false},
		{"a longer name", "veth0123abcde", "", true, false},
		{"marked as another attachment's", "veth0123abcd", "fairlead other c eth0", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			netns := kerneltest.Netns(t)
			kerneltest.Run(t, "ip", "link", "add", c.host, "type", "veth", "peer", "name", "eth0", "netns", netns)
			kerneltest.Run(t, "ip", "link", "set", c.host, "alias", c.alias)
			e := open(t, netns, kernel.Options{})
			v := &kernel.Veth{Name: owner.LinkName("veth"), PeerSide: kernel.Container, PeerName: "eth0", Mark: owner.Mark(), Foreign: c.foreign}
			if err := e.Remove(kernel.Objects{v}); err != nil {
				t.Fatal(err)
			}
			if there := strings.Contains(kerneltest.Run(t, "ip", "-o", "link"), c.host); there == c.goes {
				t.Errorf("the pair is there: %v", there)
			}
		})
	}
}

// A bridge that somebody else made stops listening to routers, unless told to
// although it forwards.
func TestExistingBridgeIgnoresRouters(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{"0": "0", "1": "0", "2": "2"} {
		t.Run(have, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.br0.accept_ra="+have)
			e := open(t, kerneltest.Netns(t), kernel.Options{})
			if err := e.Apply(kernel.Objects{&kernel.Bridge{Name: "br0"}}); err != nil {
				t.Fatal(err)
			}
			if got, err := e.Sysctl(kernel.Host, "net/ipv6/conf/br0/accept_ra"); err != nil || got != want {
				t.Errorf("accept_ra was %s, is %s (%v), want %s", have, got, err, want)
			}
		})
	}
}
