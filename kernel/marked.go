package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
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
	sets, err := e.sets()
	errs := []error{err}
	for _, set := range sets {
		list, err := e.elements(set)
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
	return errors.Join(append(errs, e.removeAccepts(dead))...)
}

// families are those in which we may have a table.
func families() []string { return []string{"inet", "bridge", "arp"} }

// sets lists the sets of our tables, as elements without a key.
func (e *Engine) sets() (out []Element, err error) {
	c, err := e.netfilter()
	if err != nil {
		return nil, err
	}
	for _, family := range families() {
		b := nfgen(family)
		b.String(unix.NFTA_SET_TABLE, Table)
		msgs, err := c.Dump(netlink.Request{Type: nftSubsystem | unix.NFT_MSG_GETSET, Body: b})
		if err != nil && !netlink.IsAbsent(err) && !errors.Is(err, unix.EAGAIN) {
			return nil, fmt.Errorf("list nftables sets: %w", err)
		}
		for _, m := range msgs {
			if len(m) > 4 && netlink.Text(netlink.Attr(m[4:], unix.NFTA_SET_TABLE)) == Table {
				out = append(out, parseSet(family, m[4:]))
			}
		}
	}
	return out, nil
}

func parseSet(family string, p []byte) Element {
	x := Element{Family: family, Table: Table, Set: netlink.Text(netlink.Attr(p, unix.NFTA_SET_NAME))}
	x.Type = typeName(netlink.Attr(p, unix.NFTA_SET_KEY_TYPE))
	if data := netlink.Attr(p, unix.NFTA_SET_DATA_TYPE); len(data) == 4 {
		x.Type += " : " + typeName(data)
	}
	return x
}

// typeName is the reverse of nftTypes.id.
func typeName(p []byte) string {
	if len(p) != 4 {
		return ""
	}
	var parts []string
	for n := binary.BigEndian.Uint32(p); n != 0; n >>= 6 {
		name := "unknown"
		for _, t := range nftTypeList() {
			if t.id == n&63 {
				name = t.name
			}
		}
		parts = append([]string{name}, parts...)
	}
	return strings.Join(parts, " . ")
}

// elements lists a set; one that does not exist is empty. With the error EAGAIN
// come those that were seen, see dump.
func (e *Engine) elements(set Element) ([]*Element, error) {
	c, err := e.netfilter()
	if err != nil {
		return nil, err
	}
	t, err := parseSetType(set.Type)
	if err != nil {
		return nil, err
	}
	b := nfgen(set.Family)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, set.Table)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, set.Set)
	msgs, err := c.Dump(netlink.Request{Type: nftSubsystem | unix.NFT_MSG_GETSETELEM, Body: b})
	if netlink.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("list set %s: %w", set.Set, err)
	}
	var out []*Element
	for _, x := range parseElements(msgs) {
		el := set
		el.Key, el.OwnerTag = t.key.format(x.key), x.comment
		if len(t.data) > 0 {
			el.Value = t.data.format(x.data)
		}
		out = append(out, &el)
	}
	return out, err
}

// format is the reverse of value.
func (t nftTypes) format(p []byte) string {
	var parts []string
	for _, part := range t {
		if len(p) < part.size {
			break
		}
		parts = append(parts, part.format(p[:part.size]))
		size := part.size
		if len(t) > 1 {
			size = wordCount(size) * 4
		}
		p = p[min(size, len(p)):]
	}
	return strings.Join(parts, " . ")
}

func (t nftType) format(p []byte) string {
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		a, _ := netip.AddrFromSlice(p)
		return a.String()
	case neighbourTarget:
		return "0x" + hex.EncodeToString(p)
	case "ether_addr":
		return hwaddr.Format(p)
	case "ifname":
		return netlink.Text(p)
	case "inet_proto":
		return protoName(p[0])
	case "inet_service":
		return fmt.Sprint(binary.BigEndian.Uint16(p))
	}
	return fmt.Sprint(netlink.Uint32(p))
}

func protoName(n byte) string {
	switch n {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	}
	return fmt.Sprint(n)
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
