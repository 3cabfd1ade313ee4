package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// criConn calls a runtime through the program in ./cri.
type criConn struct {
	stdin io.WriteCloser
	ended chan struct{} // closed when the program has exited

	mu      sync.Mutex
	last    int
	waiting map[int]chan criAnswer
}

type criAnswer struct {
	ID       int
	Error    string
	Response json.RawMessage
}

func dialCRI(t *testing.T, program, socket string) *criConn {
	t.Helper()
	cmd := exec.Command(program, "unix://"+socket)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &criConn{stdin: stdin, ended: make(chan struct{}), waiting: map[int]chan criAnswer{}}
	go func() {
		c.read(stdout)
		_ = cmd.Wait()
		close(c.ended)
	}()
	return c
}

func (c *criConn) close() {
	_ = c.stdin.Close()
	<-c.ended
}

func (c *criConn) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var a criAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			a.Error = err.Error()
		}
		c.mu.Lock()
		if wait := c.waiting[a.ID]; wait != nil {
			wait <- a
		}
		delete(c.waiting, a.ID)
		c.mu.Unlock()
	}
}

// call waits for the answer and decodes it into response, which may be nil.
func (c *criConn) call(method string, request object, response any) error {
	wait := make(chan criAnswer, 1)
	c.mu.Lock()
	c.last++
	c.waiting[c.last] = wait
	raw, err := json.Marshal(object{"ID": c.last, "Method": method, "Request": request})
	if err == nil {
		_, err = c.stdin.Write(append(raw, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	select {
	case a := <-wait:
		if a.Error != "" {
			return fmt.Errorf("%s: %s", method, a.Error)
		}
		if response == nil {
			return nil
		}
		return json.Unmarshal(a.Response, response)
	case <-c.ended:
		return errors.New(method + ": the CRI program has exited")
	}
}
