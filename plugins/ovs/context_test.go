package ovs

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
)

// TestContextEndsWaits checks that a wait for the database and a wait for the switch end with the caller's context, long
// before their own limit.
func TestContextEndsWaits(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	silent := filepath.Join(t.TempDir(), "db.sock")
	l, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sw := ovstest.New(t)
	sw.Stop("ovs-vswitchd")
	for what, wait := range map[string]func(context.Context) error{
		"a database that does not answer": func(ctx context.Context) error {
			return (&ovs{db: "unix:" + silent}).Ready(ctx, &plugin.Attachment{})
		},
		"a switch that does not run": func(ctx context.Context) error {
			s := newSwitch("", "n")
			defer s.Close()
			return s.EnsureBridge(ctx, &kernel.OVSBridge{Name: "br1", DB: "unix:" + sw.Socket()})
		},
	} {
		gone := errors.New("the caller has gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, gone)
		began := time.Now()
		err := wait(ctx)
		cancel()
		if took := time.Since(began); !errors.Is(err, gone) || took > kerneltest.Slow(2*time.Second) {
			t.Errorf("%s: %v after %v", what, err, took)
		}
	}
}
