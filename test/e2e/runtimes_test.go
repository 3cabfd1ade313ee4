package e2e

import (
	"os"
	"slices"
	"testing"
	"time"
)

// allVariable asks for the clients that have to be built, too, and for every
// case with fused lists.
const allVariable = "FAIRLEAD_E2E"

// TestRuntimes takes every client through every case, with its lists as they
// are and fused.
func TestRuntimes(t *testing.T) {
	p := build(t)
	r := &results{calls: map[string]string{}}
	t.Run("client", func(t *testing.T) {
		for name, c := range clients(p) {
			for _, fuse := range []bool{false, true} {
				t.Run(name+" "+listWord(fuse), func(t *testing.T) {
					t.Parallel()
					allCases(t, c(t), p, r, fuse)
				})
			}
		}
	})
}

// clients make each anew: a stage has one of its own. Those that have to be built
// take a minute each to build, once.
func clients(p programs) map[string]func(*testing.T) client {
	all := map[string]func(*testing.T) client{
		"containerd 1.6": func(*testing.T) client { return containerd16(p) },
		"Podman":         func(*testing.T) client { return &podman{programs: p} },
	}
	if os.Getenv(allVariable) != "" {
		all["containerd 2.3"] = func(t *testing.T) client { return containerd23(t, p) }
		all["nerdctl"] = func(t *testing.T) client { return newNerdctl(t, p) }
	}
	return all
}

func listWord(fused bool) string {
	if fused {
		return "fused"
	}
	return "plain"
}

func allCases(t *testing.T, c client, p programs, r *results, fused bool) {
	fuse := ""
	if fused {
		fuse = p.fuse
	}
	s := newStage(t, c, p, lists(c.spec()), fuse)
	s.noted, s.fuse = r, fuse
	version, err := c.version()
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range scenarios() {
		if fused && sc.long && os.Getenv(allVariable) == "" {
			continue
		}
		row := result{client: c.name(), version: version, lists: listWord(fused), name: sc.name}
		start := time.Now()
		if row.said = cannot(c, sc); row.said == "" {
			row.said = "failed"
			if t.Run(sc.name, func(t *testing.T) { sc.run(t, s); s.asBefore(t) }) {
				row.said = "passed"
			} else if err := c.removeAll(); err != nil { // what comes next is not to suffer
				t.Log(err)
			}
		}
		row.took = time.Since(start)
		r.add(row)
	}
}

// cannot says why a client is not asked for a case.
func cannot(c client, sc scenario) string {
	i := slices.IndexFunc(sc.needs, func(a ability) bool { return c.lacks(a) != "" })
	if i < 0 {
		return ""
	}
	return "not offered by the client: " + c.lacks(sc.needs[i])
}

func machineName(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
