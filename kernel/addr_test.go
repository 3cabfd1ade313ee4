package kernel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestGatewayWithOtherPrefixLength checks a gateway address that a bridge has with another prefix length.
func TestGatewayWithOtherPrefixLength(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ have, want string }{{"10.1.0.1/16", "10.1.0.1/24"}, {"fd00::1/48", "fd00::1/64"}} {
		t.Run(c.have, func(t *testing.T) {
			t.Parallel()
			kerneltest.Host(t)
			kerneltest.Run(t, "ip", "link", "add", "br0", "type", "bridge")
			kerneltest.Run(t, "ip", "addr", "add", c.have, "dev", "br0", "nodad")
			e := open(t, "", kernel.Options{})
			gateway := &kernel.Addr{Link: "br0", Prefix: netip.MustParsePrefix(c.want), IsShared: true}
			if err := e.Apply(kernel.Objects{gateway}); err == nil || !strings.Contains(err.Error(), "br0 already has an address different from "+c.want+": "+c.have) {
				t.Errorf("without forceAddress: %v", err)
			}
			gateway.ForceAddress = true
			if err := e.Apply(kernel.Objects{gateway}); err != nil {
				t.Errorf("with forceAddress: %v", err)
			}
			if d, err := e.Compare(kernel.Objects{gateway}); err != nil || len(d) > 0 {
				t.Errorf("check: %v, %s", err, words(d))
			}
			if s := kerneltest.Run(t, "ip", "addr", "show", "br0"); strings.Contains(s, c.have) {
				t.Errorf("br0 still has %s:\n%s", c.have, s)
			}
		})
	}
}
