package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
)

// networkConditions is a store that records what agents report.
type networkConditions struct {
	problems map[string]string
	calls    int
	err      error
}

func (n *networkConditions) SetNetworkReady(_ context.Context, network, problem string) error {
	if n.err == nil {
		n.problems[network] = problem
		n.calls++
	}
	return n.err
}

// TestNetworkReports checks that an agent reports each network once, again when its state or the network changes, and
// again after an error.
func TestNetworkReports(t *testing.T) {
	t.Parallel()
	var r networkReports
	to := &networkConditions{problems: map[string]string{}}
	s := cluster.NewSnapshot()
	s.Networks["default"], s.Networks["blue"] = &cluster.Network{}, &cluster.Network{}
	revision := map[string]int64{"networks/default": 1, "networks/blue": 2}
	report := func(w desired.State, calls int) {
		t.Helper()
		r.set(s, &w, revision)
		if !r.due.IsZero() {
			r.due = time.Now().Add(-time.Second)
		}
		to.calls = 0
		err := r.report(t.Context(), to)
		if !errors.Is(err, to.err) || to.calls != calls {
			t.Errorf("%d calls, %v; want %d calls, %v", to.calls, err, calls, to.err)
		}
	}
	report(desired.State{}, 2)
	report(desired.State{}, 0)
	bad := desired.State{Bad: map[string]error{"networks/blue": errors.New("its vni 7 belongs to network red"), "nodes/a": errors.New("no address")}}
	to.err = errors.New("away")
	report(bad, 0)
	to.err = nil
	report(bad, 1)
	if to.problems["blue"] != "its vni 7 belongs to network red" || to.problems["default"] != "" || len(to.problems) != 2 {
		t.Errorf("reported: %q", to.problems)
	}
	report(desired.State{}, 1)
	if to.problems["blue"] != "" {
		t.Errorf("reported: %q", to.problems)
	}
	revision["networks/default"] = 3 // the administrator changes something that is no problem
	report(desired.State{}, 1)
	report(desired.State{}, 0)
}
