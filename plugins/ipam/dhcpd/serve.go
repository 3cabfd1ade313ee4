package dhcpd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"time"
)

// Serve serves callers until the context ends. Then it closes the listener and waits for running requests, whose ADDs
// fail.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var callers sync.WaitGroup
	defer callers.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		var passing net.Error
		if errors.As(err, &passing) && !errors.Is(err, net.ErrClosed) {
			d.log("accept: %v", err) // for example, too many open files
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		callers.Go(func() { d.serve(ctx, conn) })
	}
}

// helloTime limits how long a caller may take to send CONNECT.
const helloTime = 10 * time.Second

// serve serves one caller with net/rpc over HTTP: CONNECT, then requests in gob. When the caller disconnects, its
// requests are cancelled.
func (d *Daemon) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	r := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(helloTime))
	if err := hello(r); err != nil {
		fmt.Fprintf(conn, "HTTP/1.0 405 must CONNECT\nContent-Type: text/plain; charset=utf-8\n\n%v\n", err)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.0 200 Connected to Go RPC\n\n"); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if ctx.Err() != nil {
		return
	}
	s := rpc.NewServer()
	if err := s.RegisterName("DHCP", &service{d, ctx}); err != nil {
		d.log("serve: %v", err)
		return
	}
	s.ServeConn(&caller{conn, r, cancel})
}

// hello reads the caller's CONNECT and its headers.
func hello(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "CONNECT "+rpc.DefaultRPCPath) {
		return fmt.Errorf("want CONNECT %s", rpc.DefaultRPCPath)
	}
	for n := 0; err == nil && strings.TrimSpace(line) != ""; n++ {
		if n > 100 {
			return errors.New("too many header lines")
		}
		line, err = r.ReadString('\n')
	}
	return err
}

// caller is a connection that detects a disconnect while its request is served.
type caller struct {
	net.Conn
	r      *bufio.Reader
	cancel context.CancelCauseFunc
}

var errCallerGone = errors.New("the plugin that sent the request has exited") // constant, never assigned

func (c *caller) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if err != nil {
		c.cancel(errCallerGone)
	}
	return n, err
}
