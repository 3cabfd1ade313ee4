package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

const (
	takenTimeout  = 20 * time.Second // the end of a namespace takes about 50 ms, and many seconds when hundreds end at once
	retryInterval = 10 * time.Millisecond
)

// pause waits. It returns an error when the engine's context has ended.
func (e *Engine) pause(d time.Duration) error {
	if e.ctx.Done() == nil {
		time.Sleep(d)
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-e.ctx.Done():
		return context.Cause(e.ctx)
	}
}

// retryWhileTaken sends a request and repeats it while the kernel reports that the resource is taken. The container's
// previous namespace may not have ended yet. Until then its link on the same parent holds a hardware address (macvlan),
// a VLAN, or an IP address (ipvlan).
//
// The request is sent alone: later requests in the same write would find the link not ready.
func (e *Engine) retryWhileTaken(s Side, r netlink.Request, taken unix.Errno) (err error) {
	for end := time.Now().Add(takenTimeout); ; err = e.pause(retryInterval) {
		if err != nil {
			return err
		}
		_, err = e.Request(s, r)
		if !errors.Is(err, taken) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("another link on the same parent uses it: %w", err)
		}
	}
}
