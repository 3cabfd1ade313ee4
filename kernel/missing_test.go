package kernel_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestCompareMissing compares objects of every kind with a host and a container that have none of them. Each must be a
// difference or an error.
func TestCompareMissing(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"ConntrackFlows",                                  // an action: entries that it deletes must not exist
		"ReferenceRules",                                  // lists only what to remove
		"ZoneSource", "OVSBridge", "OVSTunnel", "OVSPort", // tests with firewalld and with Open vSwitch compare them
	}
	kind := func(o kernel.Object) string { return reflect.TypeOf(o).Elem().Name() }
	all := append(situations(), situation{name: "another plugin's", objects: func(*testing.T) kernel.Objects {
		return kernel.Objects{&kernel.ExpectedLink{In: kernel.Container, Link: "eth0"}}
	}})
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			kerneltest.Host(t)
			netns := kerneltest.Netns(t)
			for _, o := range s.objects(t) {
				if kind(o) == "ConntrackFlows" {
					continue
				}
				kinds = append(kinds, kind(o))
				e := open(t, netns, kernel.Options{})
				if d, err := e.Compare(kernel.Objects{o}); err == nil && len(d) == 0 {
					t.Errorf("%T %s: no difference", o, o)
				}
			}
		})
	}
	for _, p := range kernel.Prototypes() {
		if !slices.Contains(kinds, kind(p)) {
			t.Errorf("no situation has an object of kind %s", kind(p))
		}
	}
}
