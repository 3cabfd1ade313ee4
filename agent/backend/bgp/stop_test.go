package bgp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestSpeakerStop checks that a stopped speaker leaves no goroutine or file open, and logs no error. The agent starts a new
// speaker whenever the node's address changes. The test is not parallel, because it counts the process's resources.
func TestSpeakerStop(t *testing.T) {
	port := int(kerneltest.FreePort(t, "127.0.0.1").Port())
	local := netip.MustParseAddr("127.0.0.1")
	var log bytes.Buffer // Stop waits for everything that writes to it
	once := func() {
		n := &bgp.Node{Log: slog.New(slog.NewTextHandler(&log, nil))}
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
	if !strings.Contains(log.String(), "shutting down") || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log has\n%s", log.String())
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

func listen(t *testing.T, host string, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestPassiveNeighbour checks that a speaker connects to its neighbours, but not to the passive ones.
func TestPassiveNeighbour(t *testing.T) {
	t.Parallel()
	port := int(kerneltest.FreePort(t, "127.0.0.1").Port())
	active := listen(t, "127.0.0.2", port)
	passive := listen(t, "127.0.0.3", port)
	c := bgp.Config{ASN: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Local: addrs("127.0.0.1"), Port: port, Neighbours: []bgp.Neighbour{
		{Address: netip.MustParseAddr("127.0.0.2"), ASN: 64512, Port: port}, {Address: netip.MustParseAddr("127.0.0.3"), ASN: 64512, Port: port, Passive: true},
	}}
	s, err := bgp.Start(t.Context(), c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	for range 2 { // the second connection is a retry: time enough to connect to the other neighbour as well
		conn, err := active.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if err := passive.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if conn, err := passive.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the speaker connected to the passive neighbour: %v, %v", conn, err)
	}
}

// TestPartOfConfiguration checks that a speaker works although it cannot announce one prefix: the node has no address of the
// prefix's family.
func TestPartOfConfiguration(t *testing.T) {
	t.Parallel()
	port := int(kerneltest.FreePort(t, "127.0.0.5").Port())
	n := &bgp.Node{}
	defer n.Stop()
	c := bgp.Config{ASN: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Local: addrs("127.0.0.5"), Port: port,
		Advertise: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}}
	starts := 0
	for range 3 {
		_, err := n.Reconcile(t.Context(), &c, func() ([]backend.Learned, error) { starts++; return nil, nil })
		if err == nil || !strings.Contains(err.Error(), "fd00::/64") || strings.Contains(err.Error(), "10.0.0.0/24") {
			t.Errorf("got %v", err)
		}
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.5", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if starts != 1 {
		t.Errorf("the speaker started %d times", starts)
	}
}
