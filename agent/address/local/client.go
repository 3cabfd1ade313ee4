package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/leanjson"
	"github.com/fairlead/fairlead/internal/unixdial"
)

// patience is the timeout of a call.
const patience = 20 * time.Second

// AwayError says that the agent does not answer.
type AwayError struct {
	Socket string
	Err    error
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("the agent does not answer at %s: %v: start it with \"systemctl restart fairlead-agent\"; in Kubernetes, see the pods of the DaemonSet fairlead", e.Socket, e.Err)
}

// Unwrap returns the cause.
func (e *AwayError) Unwrap() error { return e.Err }

// Call calls the agent on this node. The error is an *AwayError if the agent does not answer, and an *Error if it
// rejects the request.
func (d Dir) Call(ctx context.Context, op string, args, result any) error {
	return d.CallAnd(ctx, op, args, result, func() error { return nil })
}

// CallAnd calls the agent and then runs then with the result. If then fails or this process dies, the agent takes back
// what it assigned.
func (d Dir) CallAnd(ctx context.Context, op string, args, result any, then func() error) error {
	raw, err := leanjson.Append(nil, args)
	if err != nil {
		return err
	}
	line, err := leanjson.Append(nil, struct {
		Version int    `json:"v"`
		Op      string `json:"op"`
		Args    lean   `json:"args"`
	}{ProtocolVersion, op, raw})
	if err != nil {
		return err
	}
	conn, err := unixdial.Dial(d.Socket())
	if a, ok := errors.AsType[*unixdial.AbsentError](err); ok {
		return &AwayError{d.Socket(), a.Err}
	}
	if err != nil {
		return fmt.Errorf("connect to the agent at %s: %w", d.Socket(), err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answer, err := exchange(conn, append(line, '\n'))
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		return &AwayError{d.Socket(), fmt.Errorf("no answer within %v", patience)}
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errIncomplete) {
		return &AwayError{d.Socket(), err} // the agent stopped or is restarting
	}
	if err != nil {
		if ctx.Err() != nil { // instead of the timeout of the connection, which ended the call
			err = context.Cause(ctx)
		}
		return fmt.Errorf("ask the agent at %s: %w", d.Socket(), err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("read the answer of the agent at %s: %w", d.Socket(), err)
	}
	if err := then(); err != nil {
		return err
	}
	_, _ = conn.Write([]byte{Taken}) // an agent that has stopped takes nothing back
	return nil
}

// lean is encoded JSON.
type lean []byte

// AppendJSON appends the JSON to b.
func (l lean) AppendJSON(b []byte) ([]byte, error) { return append(b, l...), nil }

// errIncomplete means that the connection ended before the whole answer arrived.
var errIncomplete = errors.New("the agent closed the connection before the end of its answer") // constant

func exchange(conn io.ReadWriter, line []byte) (*Answer, error) {
	if _, err := conn.Write(line); err != nil {
		return nil, err
	}
	raw, err := bufio.NewReader(io.LimitReader(conn, MaxLine)).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = errIncomplete
	}
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if a.Version != ProtocolVersion && a.Error == nil {
		return nil, fmt.Errorf("the agent supports version %d: want %d", a.Version, ProtocolVersion)
	}
	return a, nil
}
