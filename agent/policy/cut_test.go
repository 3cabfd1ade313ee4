package policy

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"testing"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// TestCutTCP reads the connections of TCP back from a table, and ignores invalid elements.
func TestCutTCP(t *testing.T) {
	cut := Cut{Numbers: map[uint32]bool{1<<32 - 1: true}, TCP: map[TCP]bool{}}
	for _, ends := range [][2]string{{"10.0.0.1:1", "10.0.0.2:65535"}, {"10.0.0.2:65535", "10.0.0.1:1"}, {"[fd00::1]:1000", "[::2]:80"}} {
		cut.TCP[TCP{netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])}] = true
	}
	table := cut.Table()
	if _, ok := table.Sets[cutSet].Elements["4294967295"]; !ok || len(table.Sets[cutSet].Elements) != 1 {
		t.Errorf("the numbers are %v", table.Sets[cutSet].Elements)
	}
	for _, invalid := range []string{"", "10.0.0.1", "10.0.0.1 . 1 . 10.0.0.2", "x . 1 . y . 2", "10.0.0.1 . 70000 . 10.0.0.2 . 1"} {
		table.Sets["tcp4"].Elements[invalid] = ""
	}
	got, err := CutTCP(func(_ *nftable.Table, set string) (map[string]string, error) { return table.Sets[set].Elements, nil })
	if err != nil || !maps.Equal(got, cut.TCP) {
		t.Errorf("got %v, %v, want %v", got, err, cut.TCP)
	}
	got, err = CutTCP(func(*nftable.Table, string) (map[string]string, error) { return nil, os.ErrNotExist })
	if err != nil || len(got) != 0 {
		t.Errorf("without a table: %v, %v", got, err)
	}
	if _, err = CutTCP(func(*nftable.Table, string) (map[string]string, error) { return nil, os.ErrDeadlineExceeded }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a failure: %v", err)
	}
	if !(Cut{}).Empty() || cut.Empty() {
		t.Error("Empty is wrong")
	}
}
