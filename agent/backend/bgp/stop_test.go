package bgp_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestSpeakerStop checks that a stopped speaker leaves no goroutine or file open. The agent starts a new speaker
// whenever the node's address changes. The test is not parallel, because it counts the process's resources.
func TestSpeakerStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	local := netip.MustParseAddr("127.0.0.1")
	once := func() {
		n := &bgp.Node{}
		c := bgp.Config{ASN: 64512, RouterID: local, Local: []netip.Addr{local}, Port: port, Advertise: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
		if _, err := n.Reconcile(context.Background(), &c, func() ([]backend.Learned, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		n.Stop()
	}
	before := runtime.NumGoroutine()
	for range 5 {
		once()
	}
	kerneltest.Eventually(t, func() error {
		after := runtime.NumGoroutine()
		if after <= before {
			return nil
		}
		raw := make([]byte, 1<<20)
		return fmt.Errorf("%d goroutines before, %d after five speakers:\n%s", before, after, raw[:runtime.Stack(raw, true)])
	})
}
