package kernel

import (
	"cmp"
	"net/netip"
)

// The functions in this file tell callers what an object will do, so that they need not
// know the types of objects.

// Of returns the objects of one type in a list.
func Of[T Object](list Objects) (out []T) {
	for _, o := range list {
		if x, ok := o.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

// PlanLink returns a link as it will be after an object is created. l is the link before,
// or nil if it is unknown. The result is nil if it cannot be foretold exactly. A link that the
// object creates has the index -1 or -2, and its peer the other of the two.
func PlanLink(o Object, s Side, name string, l *LinkInfo) *LinkInfo {
	if p, ok := o.(interface {
		planLink(s Side, name string, l *LinkInfo) *LinkInfo
	}); ok {
		return p.planLink(s, name, l)
	}
	return l
}

const (
	defaultMTU   = 1500 // bytes
	defaultQueue = 1000 // packets: DEFAULT_TX_QUEUE_LEN, linux/netdevice.h
)

func (v *Veth) planLink(s Side, name string, l *LinkInfo) *LinkInfo {
	if v.IsShared || v.Type != "" || v.MAC == "" || v.PeerMAC == "" {
		return l
	}
	host := s == Host && v.Name == name
	if !host && (s != v.PeerSide || v.PeerName != name) {
		return l
	}
	end := &LinkInfo{Name: name, Kind: "veth", MTU: cmp.Or(v.MTU, defaultMTU), TxQLen: defaultQueue, Group: LinkGroup, MAC: v.PeerMAC, Index: -2, Peer: -1}
	if host {
		end.MAC, end.Alias, end.Index, end.Peer = v.MAC, v.OwnerTag, -1, -2
	}
	return end
}

func (u *Up) planLink(s Side, name string, l *LinkInfo) *LinkInfo {
	if l != nil && u.In == s && u.Link == name {
		l.Up = true
	}
	return l
}

func (t *LinkAttrs) planLink(s Side, name string, l *LinkInfo) *LinkInfo {
	if s == Container && t.Link == name {
		return nil
	}
	return l
}

// DescribeLink returns what is known in advance about a link that an object creates, or nil
// if it does not create the link. Unlike PlanLink it leaves out what the kernel chooses.
func DescribeLink(o Object, s Side, name string) *LinkInfo {
	if d, ok := o.(interface {
		describeLink(s Side, name string) *LinkInfo
	}); ok {
		return d.describeLink(s, name)
	}
	return nil
}

func (b *Bridge) describeLink(s Side, name string) *LinkInfo {
	if s != Host || b.Name != name {
		return nil
	}
	return &LinkInfo{Name: name, Kind: "bridge", MAC: b.MAC, Up: true}
}

func (v *Veth) describeLink(s Side, name string) *LinkInfo {
	switch {
	case s == Host && v.Name == name:
		return &LinkInfo{Name: name, Kind: v.typ(), MTU: cmp.Or(v.MTU, defaultMTU), MAC: v.MAC, Alias: v.OwnerTag}
	case s == v.PeerSide && v.PeerName == name:
		return &LinkInfo{Name: name, Kind: v.typ(), MTU: cmp.Or(v.MTU, defaultMTU), MAC: v.PeerMAC}
	}
	return nil
}

func (s *StackedLink) describeLink(side Side, name string) *LinkInfo {
	if side != Container || s.Name != name {
		return nil
	}
	return &LinkInfo{Name: name, Kind: s.Type, MAC: s.MAC}
}

// MayChangeLink reports whether creating an object may create or change a link. exists says
// that the link is known to exist.
func MayChangeLink(o Object, s Side, name string, exists bool) bool {
	if c, ok := o.(interface {
		mayChangeLink(s Side, name string, exists bool) bool
	}); ok {
		return c.mayChangeLink(s, name, exists)
	}
	return true
}

func (b *Bridge) mayChangeLink(s Side, name string, exists bool) bool {
	return !exists && s == Host && b.Name == name
}

func (u *Up) mayChangeLink(s Side, name string, _ bool) bool { return u.In == s && u.Link == name }

func (v *Veth) mayChangeLink(s Side, name string, _ bool) bool {
	return s == Host && v.Name == name || s == v.PeerSide && v.PeerName == name
}

func (i *IFB) mayChangeLink(s Side, name string, _ bool) bool { return s == Host && i.Name == name }

func (*Addr) mayChangeLink(Side, string, bool) bool           { return false }
func (*Route) mayChangeLink(Side, string, bool) bool          { return false }
func (*Rule) mayChangeLink(Side, string, bool) bool           { return false }
func (*Neigh) mayChangeLink(Side, string, bool) bool          { return false }
func (*Sysctl) mayChangeLink(Side, string, bool) bool         { return false }
func (*NFT) mayChangeLink(Side, string, bool) bool            { return false }
func (*Element) mayChangeLink(Side, string, bool) bool        { return false }
func (*ConntrackFlows) mayChangeLink(Side, string, bool) bool { return false }
func (*ForwardRule) mayChangeLink(Side, string, bool) bool    { return false }
func (*Qdisc) mayChangeLink(Side, string, bool) bool          { return false }
func (*TCFilter) mayChangeLink(Side, string, bool) bool       { return false }

// SetsSysctl reports whether an object writes a key of a side.
func SetsSysctl(o Object, s Side, key string) bool {
	x, ok := o.(interface{ sets(s Side, key string) bool })
	return ok && x.sets(s, key)
}

func (s *Sysctl) sets(side Side, key string) bool { return s.In == side && s.Key == key }

// Destination is a prefix that an address or a route makes reachable over a link.
type Destination struct {
	Side   Side
	Prefix netip.Prefix
	Link   string
	Table  int // 0: main
}

// DestinationOf returns the destination of an address or a route. ok is false for other objects.
func DestinationOf(o Object) (d Destination, ok bool) {
	if x, is := o.(interface{ destination() Destination }); is {
		return x.destination(), true
	}
	return d, false
}

func (a *Addr) destination() Destination {
	return Destination{Side: a.In, Prefix: a.Prefix.Masked(), Link: a.Link}
}

func (r *Route) destination() Destination {
	return Destination{Side: r.In, Prefix: r.Dst, Link: r.Link, Table: r.Table}
}

// RemovedInOrder reports whether an object must be removed in its place among the objects of
// other plugins: a device that returns to the host, a VRF and its members, routes that are
// restored.
func RemovedInOrder(o Object) bool {
	_, ok := o.(interface{ removedInOrder() })
	return ok
}

func (*HostDevice) removedInOrder()  {}
func (*VRF) removedInOrder()         {}
func (*VRFMember) removedInOrder()   {}
func (*AbsentRoute) removedInOrder() {}
func (*OVSPort) removedInOrder()     {}

// interfaceName returns the container's interface, or the host end if both ends are on the
// host. It is "" for a shared pair.
func (v *Veth) interfaceName() string {
	switch {
	case v.IsShared:
		return ""
	case v.PeerSide == Host:
		return v.Name
	}
	return v.PeerName
}

func (s *StackedLink) interfaceName() string { return s.Name }
func (t *Tap) interfaceName() string         { return t.Name }
func (d *Dummy) interfaceName() string       { return d.Name }
func (m *HostDevice) interfaceName() string  { return m.Name }

// Tunnel returns the name and the MTU in bytes of the link of a tunnel, or "" for other objects.
func Tunnel(o Object) (name string, mtu int) {
	if t, ok := o.(interface{ tunnelLink() (string, int) }); ok {
		return t.tunnelLink()
	}
	return "", 0
}

func (v *VXLAN) tunnelLink() (string, int)     { return v.Name, v.MTU }
func (p *IPIP) tunnelLink() (string, int)      { return p.Name, p.MTU }
func (w *WireGuard) tunnelLink() (string, int) { return w.Name, w.MTU }

// PartOfTable reports whether an object is in the nftables table that another object is.
func PartOfTable(o, table Object) bool {
	x, ok := o.(interface{ partOf(table Object) bool })
	return ok && x.partOf(table)
}

func (n *NFT) partOf(table Object) bool {
	t, ok := table.(*NFT)
	return ok && n.Kind != "table" && t.Kind == "table" && n.Table == t.Table && n.Family == t.Family
}
