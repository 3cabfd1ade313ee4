package kernel_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestFamilyThatKernelLacks lists routes and rules of a family for which no kernel has any. It answers as a kernel with
// ipv6.disable=1 does about IPv6.
func TestFamilyThatKernelLacks(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	if routes, err := e.Routes(kernel.Host, kernel.IPv4, 0); err != nil || len(routes) == 0 {
		t.Fatalf("IPv4 has the routes %v, %v", routes, err)
	}
	if routes, err := e.Routes(kernel.Host, unix.AF_AX25, 0); err != nil || len(routes) > 0 {
		t.Errorf("routes: %v, %v", routes, err)
	}
	if rules, err := e.Rules(kernel.Host, unix.AF_AX25); err != nil || len(rules) > 0 {
		t.Errorf("rules: %v, %v", rules, err)
	}
}
