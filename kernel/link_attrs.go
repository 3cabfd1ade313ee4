package kernel

import (
	"cmp"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// LinkSettings are attributes of a link. An attribute that is nil, "" or 0 stays as it is.
type LinkSettings struct {
	MAC      string `json:",omitzero"`
	MTU      int    `json:",omitzero"` // bytes
	Promisc  *bool  `json:",omitzero"`
	AllMulti *bool  `json:",omitzero"`
	TxQLen   *int   `json:",omitzero"` // packets
}

// LinkAttrs changes attributes of a container's link. Removing the object restores the Previous ones. Source:
// ip-link(8).
type LinkAttrs struct {
	base
	Link     string       `json:",omitzero"`
	Set      LinkSettings `json:",omitzero"`
	Previous LinkSettings `json:"Was,omitzero"`
}

func (t *LinkAttrs) kind() string { return "tuned" }
func (t *LinkAttrs) Side() Side   { return Container }
func (t *LinkAttrs) Shared() bool { return false }
func (t *LinkAttrs) on() linkName { return linkName{Container, t.Link} }

func (t *LinkAttrs) String() string { return "ip link set " + t.Link + t.Set.ipOptions() }

func (s LinkSettings) ipOptions() (w string) {
	if s.MAC != "" {
		w += " address " + s.MAC
	}
	if s.MTU > 0 {
		w += " mtu " + strconv.Itoa(s.MTU)
	}
	if s.Promisc != nil {
		w += " promisc " + onOff(*s.Promisc)
	}
	if s.AllMulti != nil {
		w += " allmulticast " + onOff(*s.AllMulti)
	}
	if s.TxQLen != nil {
		w += " txqueuelen " + strconv.Itoa(*s.TxQLen)
	}
	return w
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// CurrentOf returns the link's current values of the attributes that s sets.
func (s LinkSettings) CurrentOf(l *LinkInfo) (was LinkSettings) {
	if s.MAC != "" {
		was.MAC = l.MAC
	}
	if s.MTU > 0 {
		was.MTU = l.MTU
	}
	if s.Promisc != nil {
		was.Promisc = &l.Promisc
	}
	if s.AllMulti != nil {
		was.AllMulti = &l.AllMulti
	}
	if s.TxQLen != nil {
		was.TxQLen = &l.TxQLen
	}
	return was
}

func (t *LinkAttrs) ensure(e *Engine) error {
	i, err := e.LinkIndex(Container, t.Link)
	if err != nil {
		return err
	}
	e.noteCreated(t) // before sending: the kernel applies the attributes one by one
	e.noteMAC(t.on(), t.Set.MAC)
	return e.send(t, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: t.Set.body(i)}, nil)
}

func (s LinkSettings) body(index int) netlink.Buffer {
	var flags, change uint32
	for flag, want := range map[uint32]*bool{unix.IFF_PROMISC: s.Promisc, unix.IFF_ALLMULTI: s.AllMulti} {
		if want != nil {
			change |= flag
			if *want {
				flags |= flag
			}
		}
	}
	b := netlink.LinkMessage(index, flags, change)
	if s.MAC != "" {
		b.Bytes(unix.IFLA_ADDRESS, macBytes(s.MAC))
	}
	if s.MTU > 0 {
		b.Uint32(unix.IFLA_MTU, uint32(s.MTU))
	}
	if s.TxQLen != nil {
		b.Uint32(unix.IFLA_TXQLEN, uint32(*s.TxQLen))
	}
	return b
}

func (t *LinkAttrs) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Container, t.Link)
	if err != nil {
		return nil, err
	}
	have := t.Set.CurrentOf(l)
	d := append(unequal("address", have.MAC, t.Set.MAC), unequal("mtu", have.MTU, t.Set.MTU)...)
	if t.Set.Promisc != nil {
		d = append(d, unequal("promisc", onOff(*have.Promisc), onOff(*t.Set.Promisc))...)
	}
	if t.Set.AllMulti != nil {
		d = append(d, unequal("allmulticast", onOff(*have.AllMulti), onOff(*t.Set.AllMulti))...)
	}
	if t.Set.TxQLen != nil {
		d = append(d, unequal("txqueuelen", *have.TxQLen, *t.Set.TxQLen)...)
	}
	return d, nil
}

func (t *LinkAttrs) changesEarlier() {}

// without returns the object without the attributes that a later one sets.
func (t *LinkAttrs) without(later Object) Object {
	l, ok := later.(*LinkAttrs)
	if !ok || l.Link != t.Link {
		return t
	}
	c := *t
	if c.Set = t.Set.minus(l.Set); c.Set == (LinkSettings{}) {
		return nil
	}
	return &c
}

// with returns the settings of both; other's come last.
func (s LinkSettings) with(other LinkSettings) LinkSettings {
	out := s.minus(other)
	out.MAC, out.MTU = cmp.Or(out.MAC, other.MAC), cmp.Or(out.MTU, other.MTU)
	out.Promisc, out.AllMulti, out.TxQLen = cmp.Or(out.Promisc, other.Promisc), cmp.Or(out.AllMulti, other.AllMulti), cmp.Or(out.TxQLen, other.TxQLen)
	return out
}

// minus returns the settings that other leaves as they are.
func (s LinkSettings) minus(other LinkSettings) LinkSettings {
	if other.MAC != "" {
		s.MAC = ""
	}
	if other.MTU != 0 {
		s.MTU = 0
	}
	if other.Promisc != nil {
		s.Promisc = nil
	}
	if other.AllMulti != nil {
		s.AllMulti = nil
	}
	if other.TxQLen != nil {
		s.TxQLen = nil
	}
	return s
}

// outlives reports whether the attributes must be restored: a host device keeps them when it returns to the host.
func (t *LinkAttrs) outlives(link Object) bool { return RemovedInOrder(link) }

func (t *LinkAttrs) remove(e *Engine) error {
	if t.Previous == (LinkSettings{}) {
		return nil
	}
	l, err := e.Link(Container, t.Link)
	if err != nil {
		return err
	}
	var errs []error
	rest := t.Previous
	rest.MAC, rest.MTU = "", 0
	for _, one := range []LinkSettings{{MAC: t.Previous.MAC}, {MTU: t.Previous.MTU}, rest} {
		if one == (LinkSettings{}) {
			continue
		}
		_, err := e.Request(Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: one.body(l.Index)})
		if !refusesFormer(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
