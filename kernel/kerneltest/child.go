package kerneltest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Child is a process that ends with this process.
type Child struct {
	*exec.Cmd
	Exited chan struct{} // closed after its end
}

// StartChild starts a command. The kernel kills it when the thread that started it ends, and Inside ends threads: so the
// command has a thread of its own, which waits for it.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	c := &Child{Cmd: cmd, Exited: make(chan struct{})}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.Exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return c, <-started
}

// Kill ends the process, as a machine that fails does, and waits for its end.
func (c *Child) Kill() {
	_ = c.Process.Kill()
	<-c.Exited
}
