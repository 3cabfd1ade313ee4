package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
