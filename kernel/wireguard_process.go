package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/kernel/wireguard"
)

// startPatience limits the time in which a device's process must answer. It needs the kernel's network lock, for which it
// waits many seconds on a host that starts and ends many containers without a free processor.
const startPatience = time.Minute

// start starts the process in a session of its own, so that it outlives this one, and waits for it to answer. It ends a
// process that does not, which would create the link later, when nobody expects it.
func (w *WireGuard) start(e *Engine) (err error) {
	argv := append(append([]string(nil), w.Program...), w.Name, w.Socket)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", null, null, null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a WireGuard device in user space: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
		}
	}()
	e.noteCreated(w)
	for end := time.Now().Add(startPatience); ; err = e.pause(retryInterval) {
		if err != nil {
			return err
		}
		_, err := wireguard.SocketDevice{Path: w.Socket}.Get()
		if err == nil {
			return nil
		}
		select {
		case state := <-ended:
			return fmt.Errorf("%s exited (%v): run it to see why; it needs /dev/net/tun", strings.Join(argv, " "), state)
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not answer at %s: %w", strings.Join(argv, " "), w.Socket, err)
		}
	}
}
