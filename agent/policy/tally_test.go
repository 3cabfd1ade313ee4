package policy

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/nft"
	"github.com/fairlead/fairlead/kernel/nftable"
)

func counter(chain, comment string, handle uint64, verdict, target string, packets uint64) nftable.Counter {
	return nftable.Counter{Chain: chain, Comment: comment, Handle: handle, Verdict: verdict, Target: target, Counter: nft.Counter{Packets: packets}}
}

// TestTally adds the counters of each kind of rule, twice; then some rules are new ones.
func TestTally(t *testing.T) {
	first := []nftable.Counter{
		counter("ingress-of-1", "NetworkPolicy shop/db ingress[0]", 1, "accept", "", 5),
		counter("ingress-of-1", "NetworkPolicy shop/db ingress[1]", 2, "accept", "", 2),
		counter("egress-2", noRule+": shop/db, shop/a", 3, "goto", UnreportedChain, 7),
		counter("ingress-deny-3", "ClusterNetworkPolicy all ingress[0] x/y", 4, "drop", "", 1),
		counter("ingress-4", "ClusterNetworkPolicy all ingress[1]", 5, "goto", "ingress-1", 3),
		counter("egress-closed", noLabels, 6, "goto", UnreportedChain, 4),
		counter(UnreportedChain, overLimits, 7, "drop", "", 100),
	}
	db, cnp := Series{"NetworkPolicy", "shop", "db", "ingress", "accepted"}, Series{"ClusterNetworkPolicy", "", "all", "ingress", "dropped"}
	passed := cnp
	passed.Verdict = "passed"
	want := map[Series]uint64{db: 7, {"NetworkPolicy", "shop", "", "egress", "dropped"}: 7, cnp: 1, passed: 3, {"", "", "", "egress", "dropped"}: 4}
	tally := NewTally(10)
	check := func(list []nftable.Counter) {
		t.Helper()
		tally.Add(list)
		if got := tally.Sums(); !maps.Equal(got, want) {
			t.Errorf("sums %+v, want %+v", got, want)
		}
	}
	check(first)
	check(first)
	first[0] = counter("ingress-of-1", "NetworkPolicy shop/db ingress[0]", 10, "accept", "", 1) // filled again
	first[1].Packets = 1                                                                        // a new table gave the handle again
	want[db] += 2
	check(first)
	first = first[:2] // policies that have gone
	maps.DeleteFunc(want, func(s Series, _ uint64) bool { return s.Kind != "" && s != db })
	check(first)

	began := NewTally(10)
	began.Skip(first)
	began.Add(first)
	if got := began.Sums(); !maps.Equal(got, map[Series]uint64{db: 0}) {
		t.Errorf("without what was counted before: %+v", got)
	}
}

// TestTallyLimit has more policies than sums. No sum gets smaller.
func TestTallyLimit(t *testing.T) {
	list := make([]nftable.Counter, 10000)
	for i := range list {
		list[i] = counter(fmt.Sprint("ingress-of-", i), fmt.Sprintf("NetworkPolicy shop/p%d ingress[0]", i), uint64(i+1), "accept", "", 1)
	}
	tally := NewTally(100)
	tally.Add(list)
	others := Series{"", "", otherPolicies, "ingress", "accepted"}
	if got := tally.Sums(); len(got) != 101 || got[others] != 9900 {
		t.Fatalf("%d sums, others %d", len(got), got[others])
	}
	for i := range list {
		list[i].Packets += 2
	}
	before := maps.Clone(tally.Sums())
	tally.Add(list[50:]) // the first fifty policies have gone, and others get their places
	got, total := tally.Sums(), uint64(0)
	for s, n := range got {
		if total += n; n < before[s] {
			t.Errorf("%+v: %d, %d before", s, n, before[s])
		}
	}
	if want := uint64(10000 - 50 + 2*9950); len(got) != 101 || total != want {
		t.Errorf("%d sums of %d packets, want %d", len(got), total, want)
	}
}

// TestTallyMerge checks that the sums of another namespace are added for policies that exist here.
func TestTallyMerge(t *testing.T) {
	here, gone := NewTally(10), NewTally(10)
	here.Add([]nftable.Counter{counter("ingress-a", "NetworkPolicy shop/db ingress[0]", 1, "accept", "", 2)})
	gone.Add([]nftable.Counter{
		counter("ingress-a", "NetworkPolicy shop/db ingress[0]", 1, "accept", "", 3),
		counter("ingress-b", "NetworkPolicy shop/old ingress[0]", 2, "accept", "", 5),
	})
	here.Merge(gone)
	if want := map[Series]uint64{{"NetworkPolicy", "shop", "db", "ingress", "accepted"}: 5}; !maps.Equal(here.Sums(), want) {
		t.Errorf("sums %v, want %v", here.Sums(), want)
	}
}

// TestTallyOfLongNames checks that packets count for the kind and the namespace of a policy whose name is too long for the
// comment of a rule.
func TestTallyOfLongNames(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 200)
	for _, c := range []struct {
		comment, verdict string
		want             Series
	}{
		{NetworkPolicyID("shop", name) + " ingress[0]", "accept", Series{Kind: "NetworkPolicy", Namespace: "shop", Verdict: "accepted"}},
		{ClusterPolicyID(name) + " ingress[0]", "drop", Series{Kind: "ClusterNetworkPolicy", Verdict: "dropped"}},
		{noRule + ": shop/" + name, "drop", Series{Kind: "NetworkPolicy", Namespace: "shop", Verdict: "dropped"}},
		{noLabels, "drop", Series{Verdict: "dropped"}},
	} {
		got, ok := seriesOf(nftable.Counter{Chain: "ingress-x", Comment: shorten(c.comment), Verdict: c.verdict})
		named := c.want.Kind != "" && !strings.HasPrefix(c.comment, noRule)
		if full := strings.TrimSuffix(got.Name, ellipsis); named != (full != "") || !strings.HasPrefix(name, full) {
			t.Errorf("%s: the name is %q", c.comment, got.Name)
		}
		got.Name, c.want.Direction = "", "ingress"
		if !ok || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.comment, got, ok, c.want)
		}
	}
}
