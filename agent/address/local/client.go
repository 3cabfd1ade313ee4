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

// patience is how long a call may take.
const patience = 20 * time.Second

// AwayError is an agent that is not there.
type AwayError struct {
	Socket string
	Err    error
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("the agent does not answer at %s: %v: start it, with \"systemctl start fairlead-agent\" or \"fairlead agent\"", e.Socket, e.Err)
}

// Unwrap is what was wrong.
func (e *AwayError) Unwrap() error { return e.Err }

// Call asks the agent of this node. One that is not there is an *AwayError; what it
// refuses is an *Error.
func (d Dir) Call(ctx context.Context, op string, args, result any) error {
	return d.CallAnd(ctx, op, args, result, func() error { return nil })
}

// CallAnd is Call, and what is done with the result: the agent takes back what it gave
// if that fails, or if this process ends before.
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
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errCutOff) {
		return &AwayError{d.Socket(), err} // it ended, or is being started again
	}
	if err != nil {
		return fmt.Errorf("ask the agent at %s to %s: %w", d.Socket(), op, err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("read the answer of the agent at %s to %s: %w", d.Socket(), op, err)
	}
	if err := then(); err != nil {
		return err
	}
	_, _ = conn.Write([]byte{Taken}) // an agent that is gone takes nothing back
	return nil
}

// lean is JSON that is written as it is.
type lean []byte

// AppendJSON appends it.
func (l lean) AppendJSON(b []byte) ([]byte, error) { return append(b, l...), nil }

// errCutOff is a conversation that ended too early.
var errCutOff = errors.New("it ended the conversation before its answer's end") // a constant; nothing assigns it

func exchange(conn io.ReadWriter, line []byte) (*Answer, error) {
	if _, err := conn.Write(line); err != nil {
		return nil, err
	}
	raw, err := bufio.NewReader(io.LimitReader(conn, MaxLine)).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = errCutOff
	}
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if a.Version != ProtocolVersion && a.Error == nil {
		return nil, fmt.Errorf("it speaks version %d: want %d", a.Version, ProtocolVersion)
	}
	return a, nil
}
