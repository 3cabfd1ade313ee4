package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// TestFailureOfOneNetwork checks that an isolated network's failure does not block attachments to others, and that a
// failure of the host blocks those with NAT, because the host's rules isolate them.
func TestFailureOfOneNetwork(t *testing.T) {
	t.Parallel()
	s := newStatus("a")
	look := func(want string, errs ...error) {
		t.Helper()
		w := &desired.State{Namespaces: []desired.Namespace{{Network: "blue"}, {Network: "green", NAT: true}, {Network: "red"}}}
		s.recordReconcile(w, &reconcile.Report{Errors: errs}, time.Now())
		here := ""
		for _, name := range slices.Sorted(maps.Keys(maps.Clone(s.namespaces))) {
			if s.hasNetwork(name) {
				here += name + " "
			}
		}
		if here != want || (s.reconcileErr != nil) != (len(errs) > 0) {
			t.Errorf("with %v there are %q, want %q; %v", errs, here, want, s.reconcileErr)
		}
	}
	red := fmt.Errorf("reconcile: %w", &networkError{"red", errors.New("file exists")})
	look("blue ", red, errors.New("write table inet fairlead-agent: no memory"))
	look("blue green ", red)
	look("blue green ", red, errors.New("write table")) // it was set up before
	look("blue green red ")
	look("blue green red ", red)
}

// TestNotReadyWithoutBlocks checks that a node without addresses is not ready, until it has some.
func TestNotReadyWithoutBlocks(t *testing.T) {
	t.Parallel()
	s := newStatus("a")
	for _, without := range []bool{true, false, true} {
		s.recordReconcile(&desired.State{NoBlocks: without}, &reconcile.Report{}, time.Now())
		if err := s.NotReady(); strings.Contains(err.Error(), "no addresses of the default network") != without {
			t.Errorf("without blocks: %v: %v", without, err)
		}
	}
}
