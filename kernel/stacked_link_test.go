package kernel_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestParentOfSameType compares a link whose configured parent is a link of the same type. The kernel creates it on the
// parent's own parent.
func TestParentOfSameType(t *testing.T) {
	t.Parallel()
	for typ, mode := range map[string]string{"macvlan": "bridge", "ipvlan": "l2"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, typ)
			kerneltest.Host(t)
			kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
			kerneltest.Run(t, "ip", "link", "add", "shim0", "link", "up0", "type", typ, "mode", mode)
			kerneltest.Run(t, "ip", "link", "add", "other0", "link", "up1", "type", typ, "mode", mode)
			e := open(t, kerneltest.Netns(t), kernel.Options{})
			link := &kernel.StackedLink{Type: typ, Name: "eth0", Parent: "shim0", Mode: mode, OwnerTag: owner.Tag()}
			if err := e.Apply(kernel.Objects{link}); err != nil {
				t.Fatal(err)
			}
			if d, err := e.Compare(kernel.Objects{link}); err != nil || len(d) > 0 {
				t.Errorf("%v\n%s", err, words(d))
			}
			link.Parent = "other0"
			if d, err := e.Compare(kernel.Objects{link}); err != nil || len(d) != 1 {
				t.Errorf("a parent with another parent: %v\n%s", err, words(d))
			}
		})
	}
}
