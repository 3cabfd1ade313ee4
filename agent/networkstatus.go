package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
)

// networkReporter is a store that shows users whether agents accept a network. problem is "" for one that they accept.
type networkReporter interface {
	SetNetworkReady(ctx context.Context, network, problem string) error
}

// reportSpread is the time for each node of the cluster during which its agents report a change of the networks, each at
// a random moment. The first one writes, and the others find that nothing is left to write. They repeat a report that the
// store rejects at the same rate.
const reportSpread = 20 * time.Millisecond

// networkReports reports the state of each network to the store.
type networkReports struct {
	mu       sync.Mutex
	want     map[string]networkReport // by name of the network
	due      time.Time                // when to report want; zero: it was reported
	nodes    int                      // in the cluster
	reported map[string]networkReport // used by one goroutine only
	failed   error                    // of the last report; used by the same goroutine
}

// networkReport is the state of a network at a revision of its key: the report names the version of the network.
type networkReport struct {
	revision int64
	problem  string // "" for none
}

// set stores the state of all networks, as the agent's last reconciliation found it. revision has the revision of each
// key.
func (r *networkReports) set(s *cluster.Snapshot, w *desired.State, revision map[string]int64) {
	want := map[string]networkReport{}
	for name := range s.Networks {
		want[name] = networkReport{revision: revision[cluster.NetworkKey(name)]}
	}
	for key, problem := range w.Bad {
		if name, is := strings.CutPrefix(key, cluster.NetworksPrefix); is {
			want[name] = networkReport{revision[key], problem.Error()}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = len(s.Nodes)
	if !maps.Equal(want, r.want) {
		r.want, r.due = want, r.moment()
	}
}

// moment returns when this agent writes its next report.
func (r *networkReports) moment() time.Time {
	return time.Now().Add(rand.N(time.Duration(r.nodes+1) * reportSpread))
}

// report writes what changed, if that is due. A network whose report fails does not hold up the others.
func (r *networkReports) report(ctx context.Context, to networkReporter) error {
	r.mu.Lock()
	want, due := r.want, !r.due.IsZero() && time.Now().After(r.due)
	r.mu.Unlock()
	if !due {
		return r.failed
	}
	var errs []error
	reported := map[string]networkReport{}
	for name, report := range want {
		if have, known := r.reported[name]; !known || have != report {
			if err := to.SetNetworkReady(ctx, name, report.problem); err != nil {
				errs = append(errs, fmt.Errorf("report the state of network %s: %w", name, err))
				continue
			}
		}
		reported[name] = report
	}
	r.reported, r.failed = reported, errors.Join(errs...)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failed != nil:
		r.due = r.moment()
	case maps.Equal(want, r.want):
		r.due = time.Time{}
	}
	return r.failed
}
