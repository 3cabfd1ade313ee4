package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// The kernel makes whoever removes a link wait for what may still use it
// (rcu_barrier, about 20 ms), once for each message. Links of one group go by one
// message.

// RemoveTogether removes the host's links of a list, of many attachments at once.
// What it does not remove is left to each one's own removal.
func (e *Engine) RemoveLinksInBatches(list Objects) {
	for part := range slices.Chunk(list, linksPerBatch) {
		e.removeInOneGroup(part)
	}
}

// perGroup bounds a write, its answers, and the time that the kernel's lock is held.
const linksPerBatch = 256

// removeTogether removes the host's links of a list by one deletion, if they
// are several, and returns those that are gone. What it does not remove, for
// whatever reason, is left to each link's own removal.
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
		name, mark := batchRemovable(o)
		l, err := e.Link(Host, name)
		if err != nil || l.Alias != mark {
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

// removeLinks removes links of the host, as many at once as can be.
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
				continue // gone, or made anew since it was listed
			}
			if err := e.deleteLink(Host, l.Name, l.Alias); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove link %s: %w", l.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// grouped are the name and the mark of a link that may go with others.
func batchRemovable(o Object) (name, mark string) {
	switch o := o.(type) {
	case *Veth:
		if !o.IsShared {
			return o.Name, o.OwnerTag
		}
	case *IFB:
		return o.Name, o.OwnerTag
	}
	return "", ""
}

// removeGroup puts links into a fresh group and deletes the group, in one write:
// a kill comes before all of it or after. The group's number is one that nobody
// chose (a random one, and none of the small ones that people take), as whatever
// else is in it would go along.
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
