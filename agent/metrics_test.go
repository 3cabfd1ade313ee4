package agent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// servedMetrics serves an agent's metrics until the test ends, and returns the address.
func servedMetrics(t *testing.T) string {
	t.Helper()
	address := kerneltest.FreePort(t, "127.0.0.1").String()
	a := &Agent{status: newStatus("a"), log: quietLog(), storeCache: newStoreCache(t.TempDir()+"/snapshot", func() {}, quietLog())}
	if err := a.serve(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	return address
}

// TestMetricsConnectionLimit checks that clients can use up only a few file descriptors, that those of other users leave
// room for root, whose kubelet asks for the agent's health, and that others are served once they disconnect.
func TestMetricsConnectionLimit(t *testing.T) {
	t.Parallel()
	address := servedMetrics(t)
	ask := func(c net.Conn) bool {
		_ = c.SetDeadline(time.Now().Add(kerneltest.Slow(10 * time.Second)))
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && r.StatusCode == http.StatusOK
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// fill opens all connections of a user, and one more.
	fill := func(open func() net.Conn) (held []net.Conn) {
		for i := range maxConnections {
			c := open()
			if held = append(held, c); !ask(c) {
				t.Fatalf("connection %d gets no answer", i)
			}
		}
		if more := open(); ask(more) {
			t.Errorf("%d connections are open", maxConnections+1)
		}
		return held
	}
	others := fill(func() net.Conn { return asNobody(t, dial) })
	roots := fill(dial)
	others[0].Close()
	kerneltest.Until(t, func() bool { return ask(asNobody(t, dial)) }) // a connection has closed
	for _, c := range append(others, roots...) {
		c.Close()
	}
	r, err := http.Get("http://" + address + "/readyz?" + strings.Repeat("x", 100<<10))
	if err != nil {
		t.Logf("a request of 100 kB: the connection was closed: %v", err)
		return
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a request of 100 kB: %s", r.Status)
	}
}

// TestMetricsConnectionWithoutBody checks that a client that announces a body and never sends it loses its connection.
func TestMetricsConnectionWithoutBody(t *testing.T) {
	t.Parallel()
	address := servedMetrics(t)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(readTimeout + kerneltest.Slow(5*time.Second)))
	if _, err := io.Copy(io.Discard, c); err != nil { // nil: the server closed it
		t.Errorf("the connection stays open: %v", err)
	}
}

// asNobody opens a connection as another user than root: a socket belongs to the user whose thread creates it.
func asNobody(t *testing.T, dial func() net.Conn) net.Conn {
	const nobody = 65534
	got := make(chan net.Conn)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setfsuid(nobody); err != nil {
			t.Error(err)
		}
		got <- dial()
	}()
	return <-got
}
