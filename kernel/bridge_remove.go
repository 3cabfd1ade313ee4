package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// RemoveBridge removes a bridge of the host that Fairlead created. It leaves a bridge that still has ports, or that
// other software created. A missing bridge is os.ErrNotExist.
func RemoveBridge(name string) error {
	e, err := Open(nil, Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	b, err := e.Link(Host, name)
	if err != nil || b.Kind != "bridge" || b.Group != LinkGroup {
		return err
	}
	all, err := e.Links(Host)
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Master == b.Index {
			return fmt.Errorf("%s is still a port of it", l.Name)
		}
	}
	_, err = e.Request(Host, netlink.Request{Type: unix.RTM_DELLINK, Body: netlink.LinkMessage(b.Index, 0, 0)})
	return err
}
