package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// removeForeign deletes the pair that the reference plugin made for this
// attachment before the node was switched: the container's interface of that
// name is a veth whose host end is called as the reference calls them and
// carries no mark. Anything else of that name is another's and stays.
func (v *Veth) removeForeign(e *Engine) error {
	if e.ns[v.PeerSide] == nil {
		return os.ErrNotExist
	}
	peer, err := e.Link(v.PeerSide, v.PeerName)
	if err != nil {
		return err
	}
	if peer.Kind != "veth" || peer.Peer == 0 {
		return os.ErrNotExist
	}
	l, err := e.LinkByIndex(Host, peer.Peer)
	if err != nil || l.Kind != "veth" || l.Peer != peer.Index || l.Alias != "" || !isReferenceName(l.Name) {
		return errors.Join(os.ErrNotExist, err)
	}
	delete(e.index[Host], l.Name)
	if _, err := e.now(Host, request{unix.RTM_DELLINK, 0, ifinfo(l.Index, 0, 0)}); err != nil {
		return fmt.Errorf("delete %s, which the reference plugin made: %w", l.Name, err)
	}
	return nil
}

// isReferenceName tells whether a name is "veth" and eight random hex digits.
func isReferenceName(name string) bool {
	digits, ok := strings.CutPrefix(name, "veth")
	return ok && len(digits) == 8 && strings.Trim(digits, "0123456789abcdef") == ""
}
