package kernel

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

const (
	takenTimeout  = 20 * time.Second // a namespace's end takes some 50 ms, many seconds when hundreds end at once
	retryInterval = 10 * time.Millisecond
)

// linger does a request, and tries again while the kernel says that what it
// asks for is taken: by the same container's last life, whose namespace is not
// yet gone altogether. A link on the same parent holds a hardware address
// (macvlan), a VLAN, or an IP address (ipvlan) until then.
//
// It goes alone: what follows in the same write would find the link not ready.
func (e *Engine) retryWhileTaken(s Side, r netlink.Request, taken unix.Errno) (err error) {
	for end := time.Now().Add(takenTimeout); ; time.Sleep(retryInterval) {
		_, err = e.Request(s, r)
		if !errors.Is(err, taken) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("taken by another link on the same parent: %w", err)
		}
	}
}
