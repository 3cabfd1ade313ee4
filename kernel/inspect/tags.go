package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// inUse reports whether the peer of a host's link is in one of the given namespaces.
func inUse(e *kernel.Engine, l *kernel.LinkInfo, by []*netns.Handle) (bool, error) {
	if l.PeerNetns < 0 {
		return false, nil
	}
	for _, ns := range by {
		body := netlink.Buffer{unix.AF_UNSPEC, 0, 0, 0}
		body.Uint32(unix.NETNSA_FD, uint32(ns.FD()))
		resp, err := e.Request(kernel.Host, netlink.Request{Type: unix.RTM_GETNSID, Body: body})
		if err != nil {
			return false, fmt.Errorf("namespace ID of %s: %w", ns.Path(), err)
		}
		for _, m := range resp.Messages {
			if v := netlink.Attr(m[min(4, len(m)):], unix.NETNSA_NSID); len(v) == 4 && int32(binary.NativeEndian.Uint32(v)) == l.PeerNetns {
				return true, nil
			}
		}
	}
	return false, nil
}

// TagsInUse returns the owner tags of the host's links, and whether the peer of such a link is in a namespace that is
// in use.
func TagsInUse(e *kernel.Engine) (map[string]bool, error) {
	all, err := e.Links(kernel.Host)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	var in []*netns.Handle
	for _, l := range all {
		if l.Group != kernel.LinkGroup || !strings.HasPrefix(l.Alias, kernel.TagPrefix) || !l.IsPair() {
			continue
		}
		if in == nil {
			if in, err = netns.All(); err != nil {
				return nil, err
			}
		}
		used, err2 := inUse(e, l, in)
		err = errors.Join(err, err2)
		out[l.Alias] = out[l.Alias] || used || err2 != nil
	}
	for _, ns := range in {
		ns.Close()
	}
	return out, err
}
