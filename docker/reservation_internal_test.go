package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni/invoke"
)

// recorder is an Exec that notes the environment of each call.
type recorder struct {
	invoke.RawExec
	fail  error
	calls [][]string
}

func (r *recorder) ExecPlugin(_ context.Context, _ string, _ []byte, environ []string) ([]byte, error) {
	r.calls = append(r.calls, environ)
	return nil, r.fail
}

// TestUnreserveWithoutPool verifies that a reservation's address is released after Docker has removed the network and its
// pool. The reservation stays until the release succeeds.
func TestUnreserveWithoutPool(t *testing.T) {
	t.Parallel()
	dir, exec := t.TempDir(), &recorder{fail: errors.New("the agent does not answer")}
	if err := os.WriteFile(filepath.Join(dir, clusterIPAM), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Socket: filepath.Join(dir, "s"), RunDir: filepath.Join(dir, "run"), LibDir: filepath.Join(dir, "lib"), Interval: time.Hour, Path: []string{dir}, Exec: exec})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.reserved.write("r1", &reservation{ID: "r1", Pool: "gone", Network: "default"}); err != nil {
		t.Fatal(err)
	}
	release := func() error { return d.unreserve(t.Context(), func(*reservation) bool { return true }) }
	if err := release(); err == nil || len(d.reserved.ids()) != 1 {
		t.Errorf("the release failed: %v; reservations %v", err, d.reserved.ids())
	}
	exec.fail = nil
	if err := release(); err != nil || len(d.reserved.ids()) != 0 {
		t.Errorf("%v; reservations %v", err, d.reserved.ids())
	}
	if len(exec.calls) != 2 || !slices.Contains(exec.calls[1], "CNI_COMMAND=DEL") || !slices.Contains(exec.calls[1], "CNI_CONTAINERID=r1") {
		t.Errorf("calls: %q", exec.calls)
	}
}
