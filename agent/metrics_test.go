package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestMetricsConnectionLimit checks that idle clients can use up only a few file descriptors, and that others are
// served once they disconnect.
func TestMetricsConnectionLimit(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	a := &Agent{status: newStatus("a"), log: quietLog(), storeCache: newStoreCache(t.TempDir()+"/snapshot", func() {}, quietLog())}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := a.serve(ctx, address); err != nil {
		t.Fatal(err)
	}
	ask := func(c net.Conn, patience time.Duration) bool {
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && r.StatusCode == http.StatusOK
	}
	var held []net.Conn
	dial := func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		return c
	}
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for i := range maxConnections {
		if !ask(dial(), 10*time.Second) {
			t.Fatalf("connection %d gets no answer", i)
		}
	}
	more := dial()
	if ask(more, 200*time.Millisecond) {
		t.Errorf("%d connections are open", maxConnections+1)
	}
	held[0].Close()
	held[1].Close()
	if !ask(more, 10*time.Second) {
		t.Error("no request is answered after the connections closed")
	}
	r, err := http.Get("http://" + address + "/readyz?" + strings.Repeat("x", 100<<10))
	if err == nil {
		defer r.Body.Close()
		if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a request of 100 kB: %s", r.Status)
		}
	}
}
