package nftable_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// TestDelete deletes a table with the second one of an interrupted Sync. Other tables stay.
func TestDelete(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	p := open(t)
	want := nftable.New("inet", "mine")
	want.Chains["base"] = &nftable.Chain{Hook: "type filter hook forward priority 0", Rules: []nftable.Rule{{Text: "drop"}}}
	for _, exists := range []bool{true, false} {
		if exists {
			sync(t, p, want)
			kerneltest.Run(t, "nft", "add", "table", "inet", "mine-next")
			kerneltest.Run(t, "nft", "add", "table", "inet", "other")
		}
		existed, err := p.Delete(t.Context(), "inet", "mine")
		if err != nil || existed != exists {
			t.Errorf("existed is %v, want %v: %v", existed, exists, err)
		}
		if list := strings.TrimSpace(kerneltest.Run(t, "nft", "list", "tables")); list != "table inet other" {
			t.Errorf("left: %s", list)
		}
	}
	sync(t, p, want) // the programmer knows that the table is gone
	if list := kerneltest.Run(t, "nft", "list", "tables"); !strings.Contains(list, "table inet mine\n") {
		t.Errorf("after Sync: %s", list)
	}
}
