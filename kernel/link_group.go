package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Removing a link waits for all CPUs (rcu_barrier, about 20 ms), once per message. One message can delete a whole link
// group.

// RemoveLinksInBatches removes the host's links of a list that spans many attachments. It ignores errors: a later
// Remove of each list removes the remaining objects.
func (e *Engine) RemoveLinksInBatches(list Objects) {
	for part := range slices.Chunk(list, linksPerBatch) {
		e.removeInOneGroup(part)
	}
}

// linksPerBatch limits the size of a write and its replies, and the time that the kernel's lock is held.
const linksPerBatch = 256

// removeInOneGroup removes the host's links of a list with one deletion, if there are several, and returns those that
// are gone. The caller removes the others one by one.
func (e *Engine) removeInOneGroup(list Objects) map[Object]bool {
	var links []Object
	for _, o := range list {
		if name, mark := batchRemovable(o); name != "" && mark != "" {
			links = append(links, o)
		}
	}
	if len(links) < 2 {
		return nil
	}
	var numbers []int
	links = slices.DeleteFunc(links, func(o Object) bool {
		name, tag := batchRemovable(o)
		l, err := e.Link(Host, name)
		if err != nil || l.Alias != tag {
			return true
		}
		numbers = append(numbers, l.Index)
		return false
	})
	if len(links) < 2 {
		return nil
	}
	resp, err := e.removeGroup(numbers)
	if err != nil || resp[len(links)].Err != nil {
		return nil
	}
	gone := map[Object]bool{}
	for i, o := range links {
		if resp[i].Err == nil {
			gone[o] = true
			name, _ := batchRemovable(o)
			delete(e.index[Host], name)
		}
	}
	return gone
}

// removeLinks removes links of the host, as many as possible at once.
func (e *Engine) removeLinks(list []*LinkInfo) error {
	var errs []error
	for part := range slices.Chunk(list, linksPerBatch) {
		numbers := make([]int, len(part))
		for i, l := range part {
			numbers[i] = l.Index
		}
		resp, err := e.removeGroup(numbers)
		gone := err == nil && resp[len(part)].Err == nil
		for i, l := range part {
			if gone && resp[i].Err == nil {
				continue
			}
			if now, err := e.Link(Host, l.Name); err != nil || now.Index != l.Index {
				continue // gone, or created again since it was listed
			}
			if err := e.deleteLink(Host, l.Name, l.Alias); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove link %s: %w", l.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// batchRemovable returns the name and owner tag of a link that can be removed with others, or "".
func batchRemovable(o Object) (name, tag string) {
	if b, ok := o.(interface{ batch() (name, tag string) }); ok {
		return b.batch()
	}
	return "", ""
}

func (v *Veth) batch() (name, tag string) {
	if v.IsShared {
		return "", ""
	}
	return v.Name, v.OwnerTag
}

func (i *IFB) batch() (name, tag string) { return i.Name, i.OwnerTag }

// removeGroup moves links into a new link group and deletes the group, in one write: a kill comes before or after all
// of it. Any other link in the group would go, too, so the group has a random number, outside the range of small
// numbers that people choose.
func (e *Engine) removeGroup(numbers []int) ([]netlink.Response, error) {
	var random [4]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return nil, err
	}
	group := netlink.Uint32(random[:]) | 1<<31
	var reqs []netlink.Request
	for _, i := range numbers {
		b := netlink.LinkMessage(i, 0, 0)
		b.Uint32(unix.IFLA_GROUP, group)
		reqs = append(reqs, netlink.Request{Type: unix.RTM_SETLINK, Flags: unix.NLM_F_ACK, Body: b})
	}
	all := netlink.LinkMessage(0, 0, 0)
	all.Uint32(unix.IFLA_GROUP, group)
	reqs = append(reqs, netlink.Request{Type: unix.RTM_DELLINK, Flags: unix.NLM_F_ACK, Body: all})
	if err := e.flush(); err != nil {
		return nil, err
	}
	c, err := e.route(Host)
	if err != nil {
		return nil, err
	}
	return c.Do(reqs)
}
