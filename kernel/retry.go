package kernel

import (
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

// retryWhileTaken sends a request and repeats it while the kernel reports that the resource is taken. The container's
// previous namespace may not have ended yet. Until then its link on the same parent holds a hardware address (macvlan),
// a VLAN, or an IP address (ipvlan).
//
// The request is sent alone: later requests in the same write would find the link not ready.
func (e *Engine) retryWhileTaken(s Side, r netlink.Request, taken unix.Errno) (err error) {
	for end := time.Now().Add(takenTimeout); ; time.Sleep(retryInterval) {
		_, err = e.Request(s, r)
		if !errors.Is(err, taken) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("another link on the same parent uses it: %w", err)
		}
	}
}
