package kernel

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// LinkInfo is a link as the kernel reports it.
type LinkInfo struct {
	Index    int
	Name     string
	Kind     string // "veth", "bridge", ...; "" for hardware
	MAC      string
	MTU      int // bytes
	Up       bool
	Carrier  bool
	Promisc  bool
	AllMulti bool
	TxQLen   int // packets
	Master   int // ifindex, 0: none
	Peer     int // ifindex of the peer or the parent, in the namespace of that link
	Group    uint32
	Alias    string

	operstate byte   // IF_OPER_*, RFC 2863, linux/if.h
	PeerNetns int32  // ID, in this namespace, of the peer's namespace; -1: the same one
	port      []byte // IFLA_INFO_SLAVE_DATA
	data      []byte // IFLA_INFO_DATA
}

const skipStats = 1 << 3 // linux/rtnetlink.h: RTEXT_FILTER_SKIP_STATS

// ParseLink decodes a message about a link: struct ifinfomsg and attributes.
func ParseLink(p []byte) *LinkInfo {
	if len(p) < unix.SizeofIfInfomsg {
		return &LinkInfo{}
	}
	flags := netlink.Uint32(p[8:])
	l := &LinkInfo{
		Index: int(netlink.Uint32(p[4:])),
		Up:    flags&unix.IFF_UP != 0, Carrier: flags&unix.IFF_LOWER_UP != 0, Promisc: flags&unix.IFF_PROMISC != 0,
		AllMulti: flags&unix.IFF_ALLMULTI != 0, PeerNetns: -1,
	}
	netlink.EachAttr(p[unix.SizeofIfInfomsg:], l.attr)
	return l
}

// operational reports whether packets pass, or whether the driver does not report that.
func (l *LinkInfo) operational() bool {
	const unknown, up = 0, 6
	return l.operstate == unknown || l.operstate == up
}

func (l *LinkInfo) attr(typ uint16, v []byte) {
	switch typ {
	case unix.IFLA_IFNAME:
		l.Name = netlink.Text(v)
	case unix.IFLA_ADDRESS:
		l.MAC = hwaddr.Format(v)
	case unix.IFLA_MTU:
		l.MTU = int(netlink.Uint32(v))
	case unix.IFLA_TXQLEN:
		l.TxQLen = int(netlink.Uint32(v))
	case unix.IFLA_MASTER:
		l.Master = int(netlink.Uint32(v))
	case unix.IFLA_LINK:
		l.Peer = int(netlink.Uint32(v))
	case unix.IFLA_LINK_NETNSID:
		l.PeerNetns = int32(netlink.Uint32(v))
	case unix.IFLA_OPERSTATE:
		l.operstate = netlink.Uint8(v)
	case unix.IFLA_GROUP:
		l.Group = netlink.Uint32(v)
	case unix.IFLA_IFALIAS:
		l.Alias = netlink.Text(v)
	case unix.IFLA_LINKINFO:
		l.Kind = netlink.Text(netlink.Attr(v, unix.IFLA_INFO_KIND))
		l.port = append([]byte(nil), netlink.Attr(v, unix.IFLA_INFO_SLAVE_DATA)...)
		l.data = append([]byte(nil), netlink.Attr(v, unix.IFLA_INFO_DATA)...)
	}
}

// Link returns a link by name. It returns os.ErrNotExist if there is none.
func (e *Engine) Link(s Side, name string) (*LinkInfo, error) {
	if e.snapshot != nil && e.snapshot.links[linkName{s, name}] != nil {
		return e.snapshot.links[linkName{s, name}], nil
	}
	return e.getLink(s, name, named(name))
}

// named returns a message about the link with a name. A name of 16 bytes or more is an alternative one: "altname" of
// ip-link(8).
func named(name string) netlink.Buffer {
	b, typ := netlink.LinkMessage(0, 0, 0), uint16(unix.IFLA_IFNAME)
	if len(name) >= unix.IFNAMSIZ {
		typ = unix.IFLA_ALT_IFNAME
	}
	b.String(typ, name)
	return b
}

// linkCached returns a link as this engine last saw it, or reads it.
func (e *Engine) linkCached(s Side, name string) (*LinkInfo, error) {
	if l := e.seen[linkName{s, name}]; l != nil {
		return l, nil
	}
	return e.Link(s, name)
}

// LinkByIndex returns a link by its index.
func (e *Engine) LinkByIndex(s Side, index int) (*LinkInfo, error) {
	if e.snapshot != nil {
		for at, l := range e.snapshot.links {
			if at.side == s && l.Index == index {
				return l, nil
			}
		}
	}
	return e.getLink(s, fmt.Sprintf("index %d", index), netlink.LinkMessage(index, 0, 0))
}

// OtherEnd returns the host end of a pair whose container end is given. It returns os.ErrNotExist if the other end is
// not on the host.
func (e *Engine) OtherEnd(in *LinkInfo) (*LinkInfo, error) {
	if !in.IsPair() || in.Peer == 0 {
		return nil, fmt.Errorf("peer of %s: %w", in.Name, os.ErrNotExist)
	}
	l, err := e.LinkByIndex(Host, in.Peer)
	if err != nil {
		return nil, err
	}
	id, err := e.netnsID()
	if err != nil {
		return nil, err
	}
	if !l.IsPair() || l.Peer != in.Index || l.PeerNetns != id { // every namespace numbers its own links
		return nil, fmt.Errorf("peer of %s on the host: %w", in.Name, os.ErrNotExist)
	}
	return l, nil
}

// netnsID returns the ID by which the host knows the container's namespace, or -1.
func (e *Engine) netnsID() (int32, error) {
	body := netlink.Buffer{unix.AF_UNSPEC, 0, 0, 0}
	body.Uint32(unix.NETNSA_FD, uint32(e.ns[Container].FD()))
	resp, err := e.Request(Host, netlink.Request{Type: unix.RTM_GETNSID, Body: body})
	if err != nil {
		return 0, fmt.Errorf("namespace ID of %s: %w", e.ns[Container].Path(), err)
	}
	id := int32(-1)
	for _, m := range resp.Messages {
		if v := netlink.Attr(m[min(4, len(m)):], unix.NETNSA_NSID); len(v) == 4 {
			id = int32(netlink.Uint32(v))
		}
	}
	return id, nil
}

func (e *Engine) getLink(s Side, name string, body netlink.Buffer) (*LinkInfo, error) {
	resp, err := e.Request(s, linkRequest(body))
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	if len(resp.Messages) == 0 {
		return nil, fmt.Errorf("link %s: %w", name, os.ErrNotExist)
	}
	return e.noteLink(s, resp.Messages[0]), nil
}

func linkRequest(body netlink.Buffer) netlink.Request {
	body.Uint32(unix.IFLA_EXT_MASK, skipStats)
	return netlink.Request{Type: unix.RTM_GETLINK, Body: body}
}

// noteLink decodes a message about a link, and remembers the link.
func (e *Engine) noteLink(s Side, m []byte) *LinkInfo {
	l := ParseLink(m)
	e.index[s][l.Name] = l.Index
	e.seen[linkName{s, l.Name}] = l
	if e.snapshot != nil {
		e.snapshot.links[linkName{s, l.Name}] = l
	}
	return l
}

// readLinks reads the links of a list before they are compared, those of each side with one write. diff reports a link
// that cannot be read.
func (e *Engine) readLinks(list Objects) {
	var reqs [2][]netlink.Request
	asked := map[linkName]bool{{}: true}
	for _, o := range list {
		for _, l := range append(o.links(), o.on()) {
			if !asked[l] && e.snapshot.links[l] == nil {
				asked[l] = true
				reqs[l.side] = append(reqs[l.side], linkRequest(named(l.name)))
			}
		}
	}
	for s, some := range reqs {
		if len(some) < 2 {
			continue
		}
		resp, err := e.Requests(Side(s), some)
		for _, r := range resp {
			if err == nil && len(r.Messages) > 0 {
				e.noteLink(Side(s), r.Messages[0])
			}
		}
	}
}

// Links lists all links of a side.
func (e *Engine) Links(s Side) ([]*LinkInfo, error) {
	out, err := e.listLinks(s)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// listLinks is like Links. If concurrent changes keep interrupting the list, it returns EAGAIN and each link that it
// saw once.
func (e *Engine) listLinks(s Side) ([]*LinkInfo, error) {
	msgs, err := e.Dump(s, netlink.Request{Type: unix.RTM_GETLINK, Body: netlink.LinkMessage(0, 0, 0)})
	if err != nil {
		err = fmt.Errorf("list links: %w", err)
	}
	var out []*LinkInfo
	known := map[int]bool{}
	for _, m := range msgs {
		if l := ParseLink(m); !known[l.Index] {
			known[l.Index] = true
			out = append(out, l)
		}
	}
	return out, err
}

// LinkIndex returns the index of a link: from the cache, from the reply to a queued request, or from the kernel.
func (e *Engine) LinkIndex(s Side, name string) (int, error) {
	if i := e.index[s][name]; i != 0 {
		return i, nil
	}
	if err := e.flush(); err != nil {
		return 0, err
	}
	if i := e.index[s][name]; i != 0 {
		return i, nil
	}
	l, err := e.Link(s, name)
	if err != nil {
		return 0, err
	}
	return l.Index, nil
}

func macBytes(mac string) []byte {
	raw, _ := hwaddr.Parse(mac)
	return raw
}
