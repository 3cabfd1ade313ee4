package ipam_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/ipam"
)

// TestAllocations checks that Allocations lists addresses without a lock, and that FreeIf frees exactly those for which
// the function returns true.
func TestAllocations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if list, err := ipam.Allocations(dir, "none"); len(list) != 0 || err != nil {
		t.Errorf("network without addresses: %v, %v", list, err)
	}
	if names, err := ipam.Networks(filepath.Join(dir, "none")); len(names) != 0 || err != nil {
		t.Errorf("networks below a missing directory: %v, %v", names, err)
	}
	r, err := ipam.Range{Subnet: netip.MustParsePrefix("10.1.0.0/29")}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	set := ipam.RangeSet{r}
	if n := set.Size(100); n != 5 { // .2 to .6: .1 is the gateway
		t.Errorf("%s has %d addresses", set, n)
	}
	if n := set.Size(3); n != 3 {
		t.Errorf("size with limit 3: %d", n)
	}
	s, err := ipam.Open(t.Context(), dir, "n", ipam.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []string{"a", "b"} {
		if _, err := s.Allocate(ipam.Owner{ContainerID: id, IfName: "eth0"}, []ipam.RangeSet{set}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "n", "10.1.0.6"), nil, 0o600); err != nil { // a crash of the reference plugin leaves such a file
		t.Fatal(err)
	}
	list, err := ipam.Allocations(dir, "n")
	if err != nil || len(list) != 3 || list[0].Owner.ContainerID != "a" || list[2].Owner != (ipam.Owner{}) || time.Since(list[0].Since) > time.Minute {
		t.Fatalf("%+v, %v", list, err)
	}
	if names, err := ipam.Networks(dir); !slices.Equal(names, []string{"n"}) || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	s.Close()
	if s, err = ipam.Open(t.Context(), dir, "n", ipam.Options{Existing: true}); err != nil {
		t.Fatal(err)
	}
	freed, err := s.FreeIf(func(h ipam.Allocation) bool { return h.Owner.ContainerID != "a" })
	if err != nil || len(freed) != 2 {
		t.Errorf("freed %+v, %v", freed, err)
	}
	if list, err := ipam.Allocations(dir, "n"); len(list) != 1 || err != nil || list[0].Owner.ContainerID != "a" {
		t.Errorf("left: %+v, %v", list, err)
	}
	s.Close()
	if _, err := ipam.Open(t.Context(), dir, "other", ipam.Options{Existing: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
