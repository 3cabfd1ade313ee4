package nftable_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// TestRead reads the table that was written, and what nft changed in it.
func TestRead(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	p := open(t)
	want := everything()
	if _, err := p.Read(t.Context(), want.Family, want.Name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a table: %v", err)
	}
	sync(t, p, want)
	kerneltest.Run(t, "nft", "add table inet other { set pods4 { type ipv4_addr ; } ; }")
	got, err := open(t).Read(t.Context(), want.Family, want.Name)
	if err != nil {
		t.Fatal(err)
	}
	as := strings.NewReplacer("ipv6-icmp", "58", `"eth0"`, "eth0") // as Read writes it
	for name, c := range want.Chains {
		for i := range c.Rules {
			c.Rules[i].Text = as.Replace(c.Rules[i].Text)
		}
		if !reflect.DeepEqual(got.Chains[name], c) {
			t.Errorf("chain %s: %+v, want %+v", name, got.Chains[name], c)
		}
	}
	for name, s := range want.Sets {
		if !reflect.DeepEqual(got.Sets[name], s) {
			t.Errorf("set %s: %+v, want %+v", name, got.Sets[name], s)
		}
	}
	if len(got.Chains) != len(want.Chains) || len(got.Sets) != len(want.Sets) {
		t.Errorf("%d chains and %d sets, want %d and %d", len(got.Chains), len(got.Sets), len(want.Chains), len(want.Sets))
	}
	for i, rule := range []string{"ip saddr 10.0.0.0/8 drop", "log group 3 snaplen 5", "meta cpu 0 drop", "limit rate 3/minute drop"} {
		kerneltest.Run(t, "nft", "add rule "+want.Family+" "+want.Name+" empty "+rule)
		got, err = p.Read(t.Context(), want.Family, want.Name)
		if err != nil || len(got.Chains["empty"].Rules) != i+1 || !strings.HasPrefix(got.Chains["empty"].Rules[i].Text, nftable.UnknownRule) {
			t.Errorf("%s: %+v (%v)", rule, got.Chains["empty"], err)
		}
	}
	kerneltest.Run(t, "nft", "add rule "+want.Family+" "+want.Name+" empty ip saddr { 10.0.0.1, 10.0.0.2 } drop")
	got, err = p.Read(t.Context(), want.Family, want.Name)
	if err != nil || got.Chains["empty"].Rules[4].Text != "ip saddr @__set0 drop" || len(got.Sets["__set0"].Elements) != 2 {
		t.Errorf("a set of a rule: %+v (%v)", got.Chains["empty"], err)
	}
	kerneltest.Run(t, "nft", "add chain "+want.Family+" "+want.Name+" output { policy drop ; }")
	if got, err = p.Read(t.Context(), want.Family, want.Name); err != nil || got.Chains["output"].Hook != "type filter hook output priority 0; policy drop" {
		t.Errorf("chain output is %+v (%v)", got.Chains["output"], err)
	}
	kerneltest.Run(t, "nft", "add table "+want.Family+" "+want.Name+" { flags dormant ; }")
	if _, err := p.Read(t.Context(), want.Family, want.Name); err == nil || !strings.Contains(err.Error(), "dormant") {
		t.Errorf("a dormant table: %v", err)
	}
}
