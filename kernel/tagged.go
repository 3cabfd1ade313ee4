package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveTaggedLinks removes the host's links of dead owners. It renames devices that the kernel returned to the host
// under a dead owner's tag.
func (e *Engine) RemoveTaggedLinks(dead func(tag string) bool) error {
	all, err := e.listLinks(Host)
	if err != nil && !errors.Is(err, unix.EAGAIN) { // the next garbage collection handles links that the list missed
		return err
	}
	var errs []error
	var links []*LinkInfo
	for _, l := range all {
		tag, device, away := ParseHostDeviceTag(l.Alias)
		switch {
		case away && dead(tag):
			err := (&HostDevice{Device: device, Name: l.Name, OwnerTag: l.Alias}).returnHome(e, Host, l)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("return link %s to the host: %w", l.Name, err))
			}
		case !away && l.Group == LinkGroup && dead(l.Alias):
			links = append(links, l)
		}
	}
	return errors.Join(append(errs, e.removeLinks(links))...)
}

// Table is the name of Fairlead's nftables table in every family.
const Table = "fairlead"

// RemoveTagged removes what dead owners left: elements of our sets, rules in third-party chains, and ports of Open
// vSwitch.
func (e *Engine) RemoveTagged(dead func(tag string) bool) error {
	sets, err := e.nftSets()
	errs := []error{err}
	for _, set := range sets {
		list, err := e.NFTElements(set)
		if !errors.Is(err, unix.EAGAIN) { // the next garbage collection handles missed elements
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
		errs = append(errs, e.ovs.RemoveTagged(e.ctx, dead))
	}
	return errors.Join(append(errs, e.removeForwardRules(dead))...)
}

// Identifier returns an nftables name made of words. It keeps letters, digits, "_", "-", "." and "/". A long name ends
// in a hash.
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
