package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestOverlaps compares the check for overlapping ranges with one address at a time.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	subnet := netip.MustParsePrefix("10.1.0.0/24")
	at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}) }
	r := rand.New(rand.NewPCG(1, 2))
	overlapping := 0
	for range 2000 {
		sets := make([]RangeSet, 1+r.IntN(3))
		used, twice := map[int]bool{}, false
		for i := range sets {
			for range 1 + r.IntN(3) {
				first := 1 + r.IntN(240)
				last := first + r.IntN(14)
				sets[i] = append(sets[i], Range{Subnet: subnet, Start: at(first), End: at(last), Gateway: at(254)})
				for n := first; n <= last; n++ {
					twice = twice || used[n]
					used[n] = true
				}
			}
		}
		_, err := CompleteSets(sets)
		if twice {
			overlapping++
		}
		if (err != nil) != twice || err != nil && !overlapsEarlier(sets, err.(*FieldError)) {
			t.Fatalf("%v: %v; two ranges overlap: %v", sets, err, twice)
		}
	}
	if overlapping < 200 || overlapping > 1800 {
		t.Errorf("%d of 2000 sets overlap: the test needs both kinds", overlapping)
	}
}

// overlapsEarlier reports whether an error is about a range that overlaps with an earlier one.
func overlapsEarlier(sets []RangeSet, e *FieldError) bool {
	r := sets[e.Set][e.Range]
	for i, set := range sets[:e.Set+1] {
		for j, other := range set {
			if (i < e.Set || j < e.Range) && !r.End.Less(other.Start) && !other.End.Less(r.Start) {
				return strings.Contains(e.Problem, fmt.Sprintf("%s overlaps with ", r))
			}
		}
	}
	return false
}

// TestManyRanges checks that the check of 20,000 ranges takes no time that a person would notice.
func TestManyRanges(t *testing.T) {
	t.Parallel()
	var set RangeSet
	for i := range 20000 {
		set = append(set, Range{Subnet: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/28", i%200, i/200))})
	}
	began := time.Now()
	if _, err := CompleteSets([]RangeSet{set}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > kerneltest.Slow(5*time.Second) {
		t.Errorf("the check took %v", took)
	}
}
