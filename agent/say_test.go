package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// A log says in words why a node is not ready, once, and when it is again.
func TestSayReady(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	v := newView(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	network := store.Entry{Key: "networks/default", Value: []byte(`{"subnets": [{"cidr": "10.0.0.0/8"}]}`), Revision: 2}
	node := store.Entry{Key: "nodes/n1", Value: []byte(`{"id": "1"}`), Revision: 3}
	v.Reset([]store.Entry{network, node}, 5)
	a := &Agent{view: v, manager: address.NewManager(address.Options{}), status: newStatus("n1"), said: saidNothing, log: slog.New(slog.NewTextHandler(&log, nil))}
	said := func() string {
		t.Helper()
		a.sayReady()
		a.sayReady() // the same again
		out := log.String()
		log.Reset()
		var lines []string
		for line := range strings.Lines(out) {
			_, words, _ := strings.Cut(strings.TrimSpace(line), " level=")
			lines = append(lines, words)
		}
		return strings.Join(lines, "\n")
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
	a.status.looked(&Wanted{}, &reconcile.Report{}, time.Now())
	expect(`INFO msg=ready node=n1 peers=0`)
	a.status.looked(&Wanted{}, &reconcile.Report{Errors: []error{errors.New("one"), errors.New("two")}}, time.Now())
	expect(`WARN msg="not ready" node=n1 why="one; two"`)
	w := &Wanted{}
	for i := range 5 {
		w.Problems = append(w.Problems, backend.Problem{Node: fmt.Sprintf("n%d", i+2), Err: errors.New("too far")})
	}
	a.status.looked(w, &reconcile.Report{}, time.Now())
	expect(`WARN msg="not ready" node=n1 why="node n2: too far; node n3: too far; node n4: too far; and 2 more"`)
	a.status.looked(&Wanted{}, &reconcile.Report{}, time.Now())
	expect(`INFO msg=ready node=n1 peers=0`)
	v.Reset([]store.Entry{node}, 6)
	a.said = saidNothing
	if got := said(); !strings.HasPrefix(got, "INFO msg=ready node=n1 peers=0\nWARN msg=\"the cluster has no default network: make it with ") || !a.State().Bare {
		t.Errorf("without a network: %s", got)
	}
}
