package e2e

import (
	"os"
	"testing"
	"time"
)

// allVariable enables the clients that have to be built, and every case with fused lists.
const allVariable = "FAIRLEAD_E2E"

// TestRuntimes runs every case with every client, with its lists unchanged and fused.
func TestRuntimes(t *testing.T) {
	p := build(t)
	r := &results{Calls: map[string]string{}}
	t.Run("client", func(t *testing.T) {
		for name, c := range clients(p) {
			for _, fuse := range []bool{false, true} {
				t.Run(name+" "+listKind(fuse), func(t *testing.T) {
					t.Parallel()
					allCases(t, c(t), p, r, fuse)
				})
			}
		}
	})
	if os.Getenv("UPDATE") != "" && os.Getenv(allVariable) != "" {
		rewritePage(t, runtimesPage, "cases", r.write(t).text())
	}
}

// clients returns constructors, because each suite has its own client. Building a client takes a minute, once.
func clients(p programs) map[string]func(*testing.T) client {
	all := map[string]func(*testing.T) client{
		"containerd 1.6": func(*testing.T) client { return containerd16(p) },
		"Podman":         func(*testing.T) client { return &podman{programs: p} },
	}
	if os.Getenv(allVariable) != "" {
		all["containerd 2.3"] = func(t *testing.T) client { return containerd23(t, p) }
		all["CRI-O"] = func(t *testing.T) client { return newCRIO(t, p) }
		all["nerdctl"] = func(t *testing.T) client { return newNerdctl(t, p) }
	}
	return all
}

func listKind(fused bool) string {
	if fused {
		return "fused"
	}
	return "plain"
}

func allCases(t *testing.T, c client, p programs, r *results, fused bool) {
	fuse := ""
	if fused {
		fuse = p.fairlead
	}
	s := newSuite(t, c, p, lists(c.spec()), fuse)
	s.results, s.fuse = r, fuse
	version, err := c.version()
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range scenarios() {
		if fused && sc.long && os.Getenv(allVariable) == "" {
			continue
		}
		row := result{Client: c.name(), Version: version, Lists: listKind(fused), Case: sc.name}
		start := time.Now()
		if row.Outcome = skipReason(c, sc, fused); row.Outcome == "" {
			row.Outcome = "failed"
			if t.Run(sc.name, func(t *testing.T) { sc.run(t, s); s.checkUnchanged(t) }) {
				row.Outcome = "passed"
			} else if err := c.removeAll(); err != nil { // so that the next case starts clean
				t.Log(err)
			}
		}
		row.Took = time.Since(start)
		r.add(row)
	}
}

// skipReason returns why a client skips a case, or "".
func skipReason(c client, sc scenario, fused bool) string {
	for _, a := range sc.requires {
		why := c.unsupported(a)
		if f, ok := c.(interface{ unsupportedFused(feature) string }); why == "" && ok && fused {
			why = f.unsupportedFused(a)
		}
		if why != "" {
			return "not offered by the client: " + why
		}
	}
	return ""
}

func machineName(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
