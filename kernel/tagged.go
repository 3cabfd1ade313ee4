package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveMarkedLinks removes the host's links whose mark is dead, and brings
// devices that are back on the host under a dead owner's mark to their own names.
func (e *Engine) RemoveTaggedLinks(dead func(mark string) bool) error {
	all, err := e.listLinks(Host)
	if err != nil && !errors.Is(err, unix.EAGAIN) { // what was not seen is the next collection's
		return err
	}
	var errs []error
	var links []*LinkInfo
	for _, l := range all {
		mark, device, away := ParseHostDeviceTag(l.Alias)
		switch {
		case away && dead(mark):
			err := (&HostDevice{Device: device, Name: l.Name, OwnerTag: l.Alias}).returnHome(e, Host, l)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("bring home link %s: %w", l.Name, err))
			}
		case !away && l.Group == LinkGroup && dead(l.Alias):
			links = append(links, l)
		}
	}
	return errors.Join(append(errs, e.removeLinks(links))...)
}

// Table is the name of every nftables table of ours, whatever its family.
const Table = "fairlead"

// RemoveMarked removes from every set of our tables the elements whose mark is
// dead, such rules of ours from others' chains, and such ports from Open vSwitch.
func (e *Engine) RemoveTagged(dead func(mark string) bool) error {
	sets, err := e.nftSets()
	errs := []error{err}
	for _, set := range sets {
		list, err := e.NFTElements(set)
		if !errors.Is(err, unix.EAGAIN) { // as with links
			errs = append(errs, err)
		}
		var gone []*Element
		known := map[string]bool{}
		for _, x := range list {
			twice := known[x.Key]
			known[x.Key] = true
			if !twice && x.OwnerTag != "" && dead(x.OwnerTag) {
				gone = append(gone, x)
			}
		}
		if len(gone) > 0 {
			errs = append(errs, e.removeElements(gone, nil, dead))
		}
	}
	if e.ovs != nil {
		errs = append(errs, e.ovs.RemoveTagged(dead))
	}
	return errors.Join(append(errs, e.removeForwardRules(dead))...)
}

// Identifier makes a name of nftables from words: letters, digits, "_", "-",
// "." and "/" stay. A long one ends in a hash.
func Identifier(words ...string) string {
	s := strings.Map(func(r rune) rune {
		if r == ':' {
			return '_'
		}
		return r
	}, strings.Join(words, "-"))
	if len(s) <= 100 {
		return s
	}
	return s[:60] + "-" + Owner{Network: s}.Hash()[:24]
}
