package ipam

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// churnNode is a node's process and its state directories, which outlive it.
type churnNode struct {
	t        *testing.T
	env      []string
	lib, run string
	cmd      *exec.Cmd
	out      *churnOutput
	stdin    io.Closer
	ended    chan struct{} // closed when the process has ended, with err
	err      error
	spent    time.Duration // CPU time of the processes that ended
}

func newChurnNode(t *testing.T, env ...string) *churnNode {
	t.Helper()
	run, err := os.MkdirTemp("", "fl") // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(run) })
	n := &churnNode{t: t, lib: t.TempDir(), run: run, env: env}
	t.Cleanup(func() { n.kill() })
	return n
}

// start starts the process, which waits for begin once it is ready.
func (n *churnNode) start() {
	n.t.Helper()
	n.out, n.ended = &churnOutput{ready: make(chan struct{})}, make(chan struct{})
	n.cmd = exec.Command(os.Args[0], "-test.run", "^TestChurnNode$", "-test.timeout", "0")
	if dir := os.Getenv("FAIRLEAD_CHURN_PROFILE"); dir != "" {
		n.cmd.Args = append(n.cmd.Args, "-test.cpuprofile", filepath.Join(dir, filepath.Base(n.run)))
	}
	// Plugins run in this process and allocate memory; plugin processes would end before a garbage collection.
	n.cmd.Env = append(append(os.Environ(), "GOGC=400"), n.env...)
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	var err error
	n.stdin, err = n.cmd.StdinPipe()
	must(n.t, err)
	must(n.t, n.cmd.Start())
	go func() {
		n.err = n.cmd.Wait()
		n.spent += n.cmd.ProcessState.UserTime() + n.cmd.ProcessState.SystemTime()
		close(n.ended)
	}()
}

// begin starts the containers once the process is ready.
func (n *churnNode) begin() {
	n.t.Helper()
	select {
	case <-n.out.ready:
	case <-n.ended:
		n.t.Fatalf("a node's process ended before it was ready: %v\n%s", n.err, n.out)
	case <-time.After(kerneltest.Slow(2 * time.Minute)):
		n.t.Fatalf("a node's process is not ready. Output:\n%s", n.out)
	}
	n.stdin.Close()
}

// wait waits for the end of the process. The error includes its output.
func (n *churnNode) wait() error {
	<-n.ended
	if n.err == nil {
		return nil
	}
	return fmt.Errorf("%w; output:\n%s", n.err, n.out)
}

func (n *churnNode) kill() {
	if n.cmd == nil || n.cmd.Process == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.ended
}

// churnOutput keeps the output of a node's process for errors.
type churnOutput struct {
	mu       sync.Mutex
	text     bytes.Buffer
	ready    chan struct{} // closed when the process reports that it is ready
	reported bool
}

const churnReady = "ready\n"

func (o *churnOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if !o.reported && bytes.HasSuffix(o.text.Bytes(), []byte(churnReady)) {
		o.reported = true
		close(o.ready)
	}
	return len(p), nil
}

func (o *churnOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
