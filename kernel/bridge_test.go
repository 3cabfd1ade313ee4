package kernel_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestExistingBridgeIgnoresRouters checks that a third-party bridge stops accepting router advertisements unless its
// accept_ra is 2.
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
