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
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// TestLogReady checks that the log states each change of readiness once, with the reasons.
func TestLogReady(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	network := store.Entry{Key: "networks/default", Value: []byte(`{"subnets": [{"cidr": "10.0.0.0/8"}]}`), Revision: 2}
	node := store.Entry{Key: "nodes/n1", Value: []byte(`{"id": "1"}`), Revision: 3}
	v.Reset(source.DecodeAll([]store.Entry{network, node}), 5)
	a := &Agent{storeCache: v, manager: address.NewManager(address.Options{}), status: newStatus("n1"), lastReady: nothingLogged, log: slog.New(slog.NewTextHandler(&log, nil))}
	logged := func() string {
		t.Helper()
		for range 2 { // no change, so no line
			a.logReady()
			a.logUnreachable()
			a.logNetworks()
		}
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
		if got := logged(); got != want {
			t.Errorf("logged %s\nwant %s", got, want)
		}
	}
	expect(`WARN msg="not ready" node=n1 why="the agent has not read the cluster's state yet; this node is not in the store yet"`)
	expect("")
	a.status.published(nil)
	a.status.recordReconcile(&desired.State{}, &reconcile.Report{}, time.Now())
	expect(`INFO msg=ready node=n1 peers=0`)
	a.status.recordReconcile(&desired.State{}, &reconcile.Report{Errors: []error{errors.New("one"), errors.New("two")}}, time.Now())
	expect(`WARN msg="not ready" node=n1 why="one; two"`)
	w := &desired.State{}
	for i := range 5 {
		w.Problems = append(w.Problems, backend.Problem{Node: fmt.Sprintf("n%d", i+2), Err: errors.New("too far")})
	}
	a.status.recordReconcile(w, &reconcile.Report{}, time.Now())
	expect("INFO msg=ready node=n1 peers=0\n" +
		`WARN msg="cannot reach nodes" count=5 why="n2: too far; n3: too far; n4: too far; and 2 more"`)
	a.status.recordReconcile(&desired.State{}, &reconcile.Report{}, time.Now())
	expect(`INFO msg="all nodes can be reached"`)
	v.Reset(source.DecodeAll([]store.Entry{node}), 6)
	a.lastReady = nothingLogged
	if got := logged(); !strings.HasPrefix(got, "INFO msg=ready node=n1 peers=0\nWARN msg=\"the cluster has no default network: create it with ") || !a.State().NoDefaultNetwork {
		t.Errorf("without a network: %s", got)
	}
}
