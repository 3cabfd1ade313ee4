package address

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
)

// Handler executes one operation. Its result may implement Delivery.
type Handler func(ctx context.Context, args json.RawMessage) (result any, err error)

// Server answers plugins on a Unix socket. Add operations before calling Serve.
type Server struct {
	Handlers map[string]Handler
}

const (
	maxConns    = 1024                  // further connections wait
	acceptPause = 50 * time.Millisecond // after a failed accept

	lineTime   = 5 * time.Second  // to receive the request
	answerTime = 18 * time.Second // to execute it; less than the plugin's timeout
	takeTime   = 2 * time.Minute  // for the plugin to use the answer, which may wait for a lock; after that it counts as delivered
)

// Listen creates the socket, accessible by root only. It replaces a stale socket, but not one on which a process
// answers.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the agent's socket: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("an agent already answers on %s: stop it first", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier agent: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for plugins: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen for plugins: %w", err)
	}
	return l, nil
}

// Serve answers requests until the context ends.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, maxConns)
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("listen for plugins: %w", err)
		}
		if err != nil { // for example too many open files; plugins wait
			time.Sleep(acceptPause)
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { conn.Close(); <-room }()
			s.serveConn(ctx, conn)
		})
	}
}

// serveConn answers one request.
func (s *Server) serveConn(ctx context.Context, conn *net.UnixConn) {
	if !isTrustedPeer(conn) {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lineTime))
	line, err := readLine(conn)
	if err != nil {
		_ = write(conn, refuse(cni.CodeDecodingFailure, err))
		return
	}
	_ = conn.SetDeadline(time.Now().Add(answerTime + lineTime))
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	left := make(chan error, 1)
	go func() { // a caller that disconnects cancels its request
		_, err := conn.Read(make([]byte, 1))
		cancel()
		left <- err
	}()
	answer, report := s.answer(limited, line)
	err = write(conn, answer)
	if report == nil {
		return
	}
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(takeTime))
		stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		err = <-left // nil: the answer was used
	}
	report(err == nil || errors.Is(err, os.ErrDeadlineExceeded))
}

// isTrustedPeer reports whether the caller is root or the agent's own user.
func isTrustedPeer(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	err = raw.Control(func(fd uintptr) {
		cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		ok = err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
	})
	return err == nil && ok
}

func readLine(r io.Reader) ([]byte, error) {
	line, err := bufio.NewReaderSize(io.LimitReader(r, local.MaxLine), 4096).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("incomplete request: want one line of JSON of at most %d bytes: %w", local.MaxLine, err)
	}
	return line, nil
}

func write(w io.Writer, a *local.Answer) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// Delivery is a result that needs to know whether the caller received it.
type Delivery interface{ Delivered(ok bool) }

// answer executes a request. If told is not nil, the caller must call it with whether the answer was used.
func (s *Server) answer(ctx context.Context, line []byte) (a *local.Answer, report func(ok bool)) {
	var r local.Request
	if err := json.Unmarshal(line, &r); err != nil {
		return refuse(cni.CodeDecodingFailure, fmt.Errorf("the request is not valid JSON: %w", err)), nil
	}
	if r.Version != local.ProtocolVersion {
		return refuse(cni.CodeGeneric, fmt.Errorf("the request has version %d; this agent supports %d", r.Version, local.ProtocolVersion)), nil
	}
	do := s.Handlers[r.Op]
	if do == nil {
		return refuse(cni.CodeGeneric, fmt.Errorf("this agent does not know the operation %q", r.Op)), nil
	}
	result, err := do(ctx, r.Args)
	if err != nil {
		return refuse(codeOf(err), err), nil
	}
	if d, ok := result.(Delivery); ok {
		report = d.Delivered
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return refuse(cni.CodeGeneric, err), report
	}
	return &local.Answer{Version: local.ProtocolVersion, Result: raw}, report
}

func refuse(code uint, err error) *local.Answer {
	return &local.Answer{Version: local.ProtocolVersion, Error: &local.Error{Code: code, Msg: err.Error()}}
}
