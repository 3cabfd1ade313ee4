package nftable_test

import (
	"errors"
	"os"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nft"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// TestCounters reads the counters of a table with a rule of each kind.
func TestCounters(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	p := open(t)
	if _, err := p.Counters("inet", "t", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a table: %v", err)
	}
	kerneltest.Run(t, "nft", "-f", scriptFile(t, `table inet t {
		chain a { counter packets 3 bytes 4 counter packets 8 bytes 9 accept comment "first"
			drop comment "without a counter"
			counter packets 18446744073709551615 bytes 5 limit rate over 10/second burst 20 packets goto b
		}
		chain b { counter comment "third"; }
	}
	table inet t2 {
		chain a { counter; }
	}`))
	want := []nftable.Counter{
		{"a", "first", 0, "accept", "", nft.Counter{Packets: 3, Bytes: 4}}, {"a", "", 0, "goto", "b", nft.Counter{Packets: 1<<64 - 1, Bytes: 5}}, {"b", "third", 0, "", "", nft.Counter{}},
	}
	for chain, want := range map[string][]nftable.Counter{"": want, "a": want[:2], "b": want[2:], "c": nil} {
		got, err := p.Counters("inet", "t", chain)
		if err != nil || len(got) != len(want) {
			t.Fatalf("chain %q: %+v (%v), want %+v", chain, got, err, want)
		}
		for i, c := range got {
			if c.Handle == 0 {
				t.Errorf("chain %q: %+v has no handle", chain, c)
			}
			if c.Handle = 0; c != want[i] {
				t.Errorf("chain %q: %+v, want %+v", chain, c, want[i])
			}
		}
	}
}
