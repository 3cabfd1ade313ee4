package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/kernel"
)

// A log says in words why a node is not ready, once, and when it is again.
func TestSayReady(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &Agent{status: newStatus("n1"), said: saidNothing, log: slog.New(slog.NewTextHandler(&log, nil))}
	said := func() string {
		t.Helper()
		a.sayReady()
		a.sayReady() // the same again
		out := log.String()
		log.Reset()
		if strings.Count(out, "\n") > 1 {
			t.Errorf("more than a line: %s", out)
		}
		_, out, _ = strings.Cut(strings.TrimSpace(out), " level=")
		return out
	}
	expect := func(want string) {
		t.Helper()
		if got := said(); got != want {
			t.Errorf("said %s\nwant %s", got, want)
		}
	}
	expect(`WARN msg="not ready" node=n1 why="nothing is known of the cluster yet; the store does not know this node yet"`)
	expect("")
	a.status.published(nil)
	a.status.looked(&Wanted{}, &kernel.Report{}, time.Now())
	expect(`INFO msg=ready node=n1 peers=0`)
	a.status.looked(&Wanted{}, &kernel.Report{Errors: []error{errors.New("one"), errors.New("two")}}, time.Now())
	expect(`WARN msg="not ready" node=n1 why="one; two"`)
	w := &Wanted{}
	for i := range 5 {
		w.Problems = append(w.Problems, backend.Problem{Node: fmt.Sprintf("n%d", i+2), Err: errors.New("too far")})
	}
	a.status.looked(w, &kernel.Report{}, time.Now())
	expect(`WARN msg="not ready" node=n1 why="node n2: too far; node n3: too far; node n4: too far; and 2 more"`)
	a.status.looked(&Wanted{}, &kernel.Report{}, time.Now())
	expect(`INFO msg=ready node=n1 peers=0`)
}
