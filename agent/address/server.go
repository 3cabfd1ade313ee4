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

// Handler does one operation that is asked for at the socket. Its result may be a
// Delivery.
type Handler func(ctx context.Context, args json.RawMessage) (result any, err error)

// Server answers plugins at a socket. Operations may be added until Serve is called.
type Server struct {
	Handlers map[string]Handler
}

const (
	maxConns    = 1024                  // more wait
	acceptPause = 50 * time.Millisecond // after a connection that could not be taken

	lineTime   = 5 * time.Second  // for a request to come whole
	answerTime = 18 * time.Second // for what it asks; less than a plugin's patience
	takeTime   = 2 * time.Minute  // for what is done with the answer, which may wait for a lock; then it counts as taken
)

// Listen makes the socket, root's alone. One that a dead agent left is replaced; one
// at which somebody answers is not.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the agent's socket: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("an agent answers at %s already: stop it first", path)
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

// Serve answers until the context ends.
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
		if err != nil { // too many open files, say: plugins have the patience to wait
			time.Sleep(acceptPause)
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { conn.Close(); <-room }()
			s.converse(ctx, conn)
		})
	}
}

// converse answers one request.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn) {
	if !ours(conn) {
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
	go func() { // who does not wait for the answer wants nothing done
		_, err := conn.Read(make([]byte, 1))
		cancel()
		left <- err
	}()
	answer, told := s.answer(limited, line)
	err = write(conn, answer)
	if told == nil {
		return
	}
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(takeTime))
		stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		err = <-left // nil: it was taken
	}
	told(err == nil || errors.Is(err, os.ErrDeadlineExceeded))
}

// ours tells whether the other side is root, or who this agent is.
func ours(conn *net.UnixConn) bool {
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
		return nil, fmt.Errorf("the request did not come whole: want one line of JSON of at most %d bytes: %w", local.MaxLine, err)
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

// Delivery is a result that wants to know whether it has reached who asked.
type Delivery interface{ Delivered(ok bool) }

// answer does what a line asks for; told, if it is not nil, has to be told whether the
// answer was taken.
func (s *Server) answer(ctx context.Context, line []byte) (a *local.Answer, told func(ok bool)) {
	var r local.Request
	if err := json.Unmarshal(line, &r); err != nil {
		return refuse(cni.CodeDecodingFailure, fmt.Errorf("the request is no JSON: %w", err)), nil
	}
	if r.Version != local.ProtocolVersion {
		return refuse(cni.CodeGeneric, fmt.Errorf("the request is of version %d: this agent speaks %d", r.Version, local.ProtocolVersion)), nil
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
		told = d.Delivered
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return refuse(cni.CodeGeneric, err), told
	}
	return &local.Answer{Version: local.ProtocolVersion, Result: raw}, told
}

func refuse(code uint, err error) *local.Answer {
	return &local.Answer{Version: local.ProtocolVersion, Error: &local.Error{Code: code, Msg: err.Error()}}
}
