package compat

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestCompatibility runs all cases and then compares the page.
func TestCompatibility(t *testing.T) {
	installReference(t)
	p := newPage()
	t.Run("case", func(t *testing.T) { // returns when all parallel subtests have ended
		t.Run("keys", func(t *testing.T) { t.Parallel(); keys(t, p, false) })
		t.Run("versions", func(t *testing.T) { t.Parallel(); versions(t, p, false) })
		t.Run("features", func(t *testing.T) { // run by the VM lane
			t.Parallel()
			t.Run("keys", func(t *testing.T) { t.Parallel(); keys(t, p, true) })
			t.Run("versions", func(t *testing.T) { t.Parallel(); versions(t, p, true) })
		})
		t.Run("errors", func(t *testing.T) { t.Parallel(); errorCodes(t, p) })
		t.Run("switch", func(t *testing.T) {
			t.Parallel()
			for name, first := range map[string]side{"to Fairlead": {}, "to the reference": {true, true}} {
				t.Run(name, func(t *testing.T) { t.Parallel(); switchNode(t, first) })
			}
			for _, key := range []string{`"device": "dev0"`, `"hwaddr": "02:00:00:00:00:05"`} {
				t.Run("to Fairlead, "+key, func(t *testing.T) { t.Parallel(); returnedDevice(t, side{}, key) })
			}
		})
		for _, v := range cni.Versions() {
			t.Run("requests/"+v, func(t *testing.T) { t.Parallel(); sameRequests(t, p, v) })
		}
	})
	p.check(t)
}

func versions(t *testing.T, p *page, needing bool) {
	for i, l := range lifecycles() {
		if (l.needs != "") != needing {
			continue
		}
		for _, v := range versionsOf(t, i, l.needs) {
			t.Run(strings.ReplaceAll(l.name, ", ", "-")+"/"+v, func(t *testing.T) {
				t.Parallel()
				if needing {
					kerneltest.Needs(t, l.needs)
				}
				want := l.run(t, side{}, v)
				for _, s := range sides()[1:] {
					problems, outcome := p.compare(l.name+" "+v, want, l.run(t, s, v))
					for _, problem := range problems {
						t.Errorf("%v: %s", s, problem)
					}
					p.version(l.name, v, s, outcome)
				}
			})
		}
	}
}

// versionsOf returns the versions to test with list i. On an emulated kernel the short lane tests only the newest, and so
// does "make test" for a feature that the host lacks: its virtual machine runs what the host skipped.
func versionsOf(t *testing.T, i int, needs string) []string {
	all := cni.Versions()
	if needs != "" && (testing.Short() || !kerneltest.Has(t, needs)) {
		return all[len(all)-1:]
	}
	return sampledVersions(i)
}

// sampledVersions returns the oldest and the newest version, and the others that are sampled: one of them by default, not
// the same for each list.
func sampledVersions(i int) (out []string) {
	all := cni.Versions()
	last := len(all) - 1
	for n, v := range all {
		if n == 0 || n == last || sampled(n+i, last-1) {
			out = append(out, v)
		}
	}
	return out
}

// keys runs the cases that need a kernel feature, or the cases that every kernel can run. Of the former, which take
// minutes in a virtual machine, it runs every 36th: see sampled.
func keys(t *testing.T, p *page, needing bool) {
	for i, k := range allKeys() {
		if (k.needs != "") != needing || needing && !sampled(i, 36) {
			continue
		}
		t.Run(k.name(), func(t *testing.T) {
			t.Parallel()
			if needing {
				kerneltest.Needs(t, k.needs)
			}
			reference := k.record(t, side{})
			for _, s := range k.mixedSides(i) {
				if !s.ourPlugins && p.byChance(k.name()) { // two runs of the reference plugins may differ as well
					continue
				}
				problems, _ := p.compare(k.name(), reference.transcript, k.record(t, s).transcript)
				for _, problem := range problems {
					t.Errorf("%v: %s", s, problem)
				}
			}
			fairlead := k.record(t, side{ourRuntime: !k.alone, ourPlugins: true})
			problems, outcome := p.compare(k.name(), reference.transcript, fairlead.transcript)
			for _, problem := range problems {
				t.Error(problem)
			}
			if reference.firstErr != "" && fairlead.firstErr != "" {
				if !sameRefusal(reference.firstErr, fairlead.firstErr) {
					t.Errorf("both fail, for reasons that do not match:\n  reference: %s\n  Fairlead: %s", reference.firstErr, fairlead.firstErr)
				}
				if !k.second { // otherwise both reject the second container
					outcome = strings.Replace(outcome, "equal", "rejected by both", 1)
				}
			}
			p.key(k, outcome)
		})
	}
}

// mixedSides returns the pairs of one implementation's runtime and the other's plugins that a case runs with. Every 16th
// case has them: see sampled.
func (k keyCase) mixedSides(i int) (list []side) {
	if !sampled(i, 16) {
		return nil
	}
	for _, s := range sides() {
		if s.ourRuntime != s.ourPlugins && !(k.alone && s.ourRuntime) {
			list = append(list, s)
		}
	}
	return list
}
