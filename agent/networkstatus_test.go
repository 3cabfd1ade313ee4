package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// TestRejectedNetworkReport checks that a network whose report the store rejects does not hold up the reports of other
// networks, and that an agent of a large cluster does not repeat the rejected one all the time.
func TestRejectedNetworkReport(t *testing.T) {
	t.Parallel()
	s, revision := cluster.NewSnapshot(), map[string]int64{}
	for i := range 5000 {
		s.Nodes[fmt.Sprint("n", i)] = &cluster.Node{}
	}
	for _, name := range []string{"a", "b", "c", "rejected"} {
		s.Networks[name] = &cluster.Network{}
	}
	var r networkReports
	r.set(s, &desired.State{}, revision)
	r.due = time.Now().Add(-time.Second)
	to := &rejectingOne{networkConditions{problems: map[string]string{}}, errors.New("the object is invalid")}
	for range 5 {
		if err := r.report(t.Context(), to); !errors.Is(err, to.why) || !strings.Contains(err.Error(), "network rejected") {
			t.Errorf("the error is %v", err)
		}
	}
	if to.calls != 3 || len(to.problems) != 3 || time.Until(r.due) <= 0 {
		t.Errorf("%d reports of the networks %v, the next at %v", to.calls, to.problems, r.due)
	}
	s.Networks["rejected"], revision["networks/rejected"] = &cluster.Network{}, 1 // the administrator corrects it
	to.why = nil
	r.set(s, &desired.State{}, revision)
	r.due = time.Now().Add(-time.Second)
	if err := r.report(t.Context(), to); err != nil || len(to.problems) != 4 || !r.due.IsZero() {
		t.Errorf("after the correction: %v, %v", err, to.problems)
	}
}

// rejectingOne rejects the reports of one network.
type rejectingOne struct {
	networkConditions
	why error
}

func (n *rejectingOne) SetNetworkReady(ctx context.Context, network, problem string) error {
	if network == "rejected" && n.why != nil {
		return n.why
	}
	return n.networkConditions.SetNetworkReady(ctx, network, problem)
}
