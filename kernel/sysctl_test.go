package kernel_test

import (
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
			kerneltest.Host(t)
			kerneltest.Run(t, "ip", "link", "add", "up0", "type", "bridge")
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.up0.accept_ra="+have)
			e := open(t, "", kernel.Options{})
			list := kernel.Forwarding(kernel.Host, true, []string{"up0"})
			if err := e.Apply(list); err != nil {
				t.Fatal(err)
			}
			if got, err := e.Sysctl(kernel.Host, "net/ipv6/conf/up0/accept_ra"); err != nil || got != want {
				t.Errorf("accept_ra was %s, is %s (%v), want %s", have, got, err, want)
			}
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.up0.accept_ra=0")
			if d, err := e.Compare(list); err != nil || len(d) > 0 {
				t.Errorf("with accept_ra 0: %v\n%s", err, words(d))
			}
			kerneltest.Run(t, "sysctl", "-qw", "net.ipv6.conf.up0.accept_ra=1")
			if d, err := e.Compare(list); err != nil || len(d) != 1 {
				t.Errorf("with accept_ra 1: %v\n%s", err, words(d))
			}
		})
	}
}
