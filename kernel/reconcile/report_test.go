package reconcile_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestReport checks that a report counts all changes and names the first 20, and that an object that the kernel refuses is
// an error and no change.
func TestReport(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	existingVXLAN(t)
	_, r := reconciler(t)
	var want kernel.Objects
	for i := range 30 {
		kerneltest.Run(t, "ip", "link", "add", fmt.Sprint("p", i), "type", "veth", "peer", "name", fmt.Sprint("q", i))
		want = append(want, &kernel.Sysctl{Key: fmt.Sprintf("net/ipv4/conf/p%d/rp_filter", i), Value: "2"})
	}
	if rep := reconcileOnce(t, r, want); rep.Applied != 30 || len(rep.Changes) != 20 {
		t.Errorf("applied %d, named %d: %q", rep.Applied, len(rep.Changes), rep.Changes)
	}
	rep := r.Reconcile(append(want, &kernel.Sysctl{Key: "net/ipv4/conf/p0/forwarding", Value: "many"}))
	var failed *kernel.ObjectError
	if rep.Applied != 0 || !errors.As(rep.Err(), &failed) {
		t.Errorf("a value that the kernel refuses: applied %d: %v", rep.Applied, rep.Err())
	}
}
