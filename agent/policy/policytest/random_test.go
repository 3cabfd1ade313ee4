package policytest

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// TestRandomWorlds checks that random worlds test something: policies decide about half of the packets, both verdicts
// are frequent, and each stage of the evaluation decides about some.
func TestRandomWorlds(t *testing.T) {
	t.Parallel()
	const packets = 20_000
	var decided, allowed int
	stages := map[Verdict]int{} // without the policy and rule
	r := seeded(1)
	for range packets / 20 {
		w := Random(r, Small)
		checkValid(t, w)
		for range 20 {
			d := Decide(w, Packet(r, w))
			for _, v := range []Verdict{d.Egress, d.Ingress} {
				stages[Verdict{Allowed: v.Allowed, Stage: v.Stage}]++
			}
			if d.Egress.Policy == "" && d.Ingress.Policy == "" {
				continue
			}
			decided++
			if d.Allowed() {
				allowed++
			}
		}
	}
	t.Logf("policies decided about %d of %d packets and allowed %d of them", decided, packets, allowed)
	if decided < packets*4/10 || decided > packets*6/10 {
		t.Errorf("policies decided about %d of %d packets, want about half", decided, packets)
	}
	if allowed < decided/4 || allowed > decided*3/4 {
		t.Errorf("policies allowed %d of %d packets, want a quarter to three quarters", allowed, decided)
	}
	for _, stage := range []Stage{NoEndpoint, Itself, OwnNode, Admin, NetworkPolicy, Baseline, Default} {
		if n := stages[Verdict{Allowed: true, Stage: stage}]; n < packets/100 {
			t.Errorf("%s allowed only %d packets", stage, n)
		}
	}
	for _, stage := range []Stage{Admin, NetworkPolicy, Baseline} {
		if n := stages[Verdict{Stage: stage}]; n < packets/100 {
			t.Errorf("%s denied only %d packets", stage, n)
		}
	}
}

// TestMutate checks that Mutate changes a valid world to another valid one, and leaves the original as it is.
func TestMutate(t *testing.T) {
	t.Parallel()
	r := seeded(2)
	var same, reused, decisions int
	for range 200 {
		w := Random(r, Small)
		for range 10 {
			before := text(t, w)
			changed := Mutate(r, w)
			if text(t, w) != before {
				t.Fatalf("Mutate changed the original:\n%s\n%s", before, text(t, w))
			}
			if text(t, changed) == before {
				same++ // an absent list became an empty one
			}
			checkValid(t, changed)
			reused += reusedAddresses(w, changed)
			for range 10 {
				if p := Packet(r, w); Allowed(w, p) != Allowed(changed, p) {
					decisions++
				}
			}
			w = changed
		}
	}
	t.Logf("of 2,000 changes, %d reuse an address and %d change no text; %d of 20,000 decisions changed", reused, same, decisions)
	if reused < 20 || same > 20 || decisions < 200 {
		t.Error("too few changes")
	}
}

// TestBreakOpensNothing checks that an invalid part of a policy never allows a packet that was denied before.
func TestBreakOpensNothing(t *testing.T) {
	t.Parallel()
	r := seeded(3)
	var closed int
	for range 1000 {
		w := Random(r, Small)
		before := text(t, w)
		broken := Break(r, w)
		if text(t, w) != before {
			t.Fatalf("Break changed the original:\n%s\n%s", before, text(t, w))
		}
		if invalidParts(broken) == 0 {
			t.Errorf("nothing is invalid in\n%s", text(t, broken))
		}
		for range 20 {
			p := Packet(r, w)
			switch d, was := Decide(broken, p), Decide(w, p); {
			case d.Allowed() && !was.Allowed():
				t.Fatalf("%+v: %+v, and %+v without the invalid part\n%s", p, d, was, text(t, broken))
			case was.Allowed() && !d.Allowed():
				closed++
			}
		}
	}
	t.Logf("invalid parts closed %d of 20,000 packets", closed)
	if closed < 200 {
		t.Errorf("invalid parts closed only %d of 20,000 packets", closed)
	}
}

func text(t *testing.T, w *policy.World) string {
	t.Helper()
	raw, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// checkValid checks that nothing is invalid in a world, and that no address is used twice.
func checkValid(t *testing.T, w *policy.World) {
	t.Helper()
	if n := invalidParts(w); n > 0 {
		t.Fatalf("%d invalid rules or selectors in\n%s", n, text(t, w))
	}
	seen := map[netip.Addr]bool{}
	for _, a := range (generator{w: w}).used() {
		if seen[a] {
			t.Fatalf("%s is used twice in\n%s", a, text(t, w))
		}
		seen[a] = true
	}
}

// invalidParts counts the invalid subjects and rules of a world.
func invalidParts(w *policy.World) int {
	f := flow{w: w, subject: &policy.Endpoint{}}
	n := 0
	count := func(a answer) {
		if a == invalid {
			n++
		}
	}
	for _, p := range w.Policies {
		count(both(f.typed(&p.Spec), selects(&p.Spec.PodSelector, nil)))
		for _, r := range append(p.Spec.Egress, egressRules(p.Spec.Ingress)...) {
			count(f.networkRule(p.Namespace, &r))
		}
	}
	for _, c := range w.ClusterPolicies {
		count(f.subjected(&c.Spec.Subject))
		for _, r := range append(c.Spec.Egress, clusterEgressRules(c.Spec.Ingress)...) {
			count(f.clusterRule(&r))
			if a := r.Action; a != "Accept" && a != "Deny" && a != "Pass" {
				n++
			}
		}
	}
	return n
}

// reusedAddresses counts the addresses that belong to other endpoints in another world.
func reusedAddresses(before, after *policy.World) int {
	n := 0
	for _, e := range before.Endpoints {
		for _, a := range e.Addresses {
			if now := endpoint(after, a); now != nil && (now.Namespace != e.Namespace || now.Name != e.Name) {
				n++
			}
		}
	}
	return n
}
