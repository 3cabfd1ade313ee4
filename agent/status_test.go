package agent

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/reconcile"
)

// What fails of one isolated network keeps no container from another; what fails of the
// host keeps those from it that have a way out, as its rules keep them apart.
func TestFailedNetwork(t *testing.T) {
	t.Parallel()
	s := newStatus("a")
	look := func(want string, errs ...error) {
		t.Helper()
		w := &Wanted{Spaces: []Space{{Network: "blue"}, {Network: "green", NAT: true}, {Network: "red"}}}
		s.looked(w, &reconcile.Report{Errors: errs}, time.Now())
		here := ""
		for _, name := range sortedKeys(maps.Clone(s.spaces)) {
			if s.isHere(name) {
				here += name + " "
			}
		}
		if here != want || (s.lookErr != nil) != (len(errs) > 0) {
			t.Errorf("with %v there are %q, want %q; %v", errs, here, want, s.lookErr)
		}
	}
	red := fmt.Errorf("look: %w", &spaceError{"red", errors.New("file exists")})
	look("blue ", red, errors.New("write table inet fairlead-agent: no memory"))
	look("blue green ", red)
	look("blue green ", red, errors.New("write table")) // it was here before
	look("blue green red ")
	look("blue green red ", red)
}
