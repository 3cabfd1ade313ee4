package plugin

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// facts are the engine's answers, as they will be once everything that the
// session's plugins stated is there. What cannot be told in advance with
// certainty makes the session do what was stated first.
type facts struct{ *session }

func (facts) HostID() string { return kernel.HostID() }

func (facts) Firewalld() bool { return kernel.Firewalld() }

func (f facts) Dropping() ([]kernel.ForwardDropChain, error) { return f.engine.ForwardDropChains() }

// Link is looked up once: what changes it, makes the session forget it.
func (f facts) Link(s kernel.Side, name string) (*kernel.LinkInfo, error) {
	if l := f.foresee(s, name); l != nil {
		return l, nil
	}
	if f.concerned(s, name) {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	key := link{s, name}
	if l := f.links[key]; l != nil {
		return l, nil
	}
	l, err := f.engine.Link(s, name)
	if err == nil {
		f.links[key] = l
	}
	return l, err
}

// defaultQueue is a link's txqueuelen at birth: DEFAULT_TX_QUEUE_LEN, linux/netdevice.h.
const defaultQueue = 1000 // packets

// foresee is a link that the session makes and nothing stated changes. It has a
// number that no link has, and when it is there, what the kernel says of it.
func (f facts) foresee(s kernel.Side, name string) (l *kernel.LinkInfo) {
	for i, o := range f.stated {
		switch o := o.Object.(type) {
		case *kernel.Veth:
			if end := bornEnd(o, s, name); end != nil {
				l = end
				l.Index, l.Peer = -2*i-1, -2*i-2
				if s == o.PeerSide && o.PeerName == name {
					l.Index, l.Peer = l.Peer, l.Index
				}
			}
		case *kernel.Up:
			if l != nil && o.In == s && o.Link == name {
				l.Up = true
			}
		case *kernel.LinkAttrs:
			if s == kernel.Container && o.Link == name {
				return nil
			}
		}
	}
	if l == nil {
		return nil
	}
	told := f.foreseen[link{s, name}]
	if told == nil {
		f.foreseen[link{s, name}] = l
		return l
	}
	told.Up = l.Up
	return told
}

// bornEnd is an end of a pair as the kernel makes it; nil: it has none of the name.
func bornEnd(v *kernel.Veth, s kernel.Side, name string) *kernel.LinkInfo {
	end := &kernel.LinkInfo{Name: name, Kind: "veth", MTU: cmp.Or(v.MTU, 1500), TxQLen: defaultQueue, Group: kernel.LinkGroup}
	switch {
	case v.IsShared || v.Type != "" || v.MAC == "" || v.PeerMAC == "":
		return nil
	case s == kernel.Host && v.Name == name:
		end.MAC, end.Alias = v.MAC, v.OwnerTag
	case s == v.PeerSide && v.PeerName == name:
		end.MAC = v.PeerMAC
	default:
		return nil
	}
	return end
}

// OtherEnd of a link that is foreseen is known when both are there.
func (f facts) OtherEnd(in *kernel.LinkInfo) (*kernel.LinkInfo, error) {
	if in.Index < 0 {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	return f.engine.OtherEnd(in)
}

// concerned tells whether something stated makes or changes a link, or may.
func (f facts) concerned(s kernel.Side, name string) bool {
	for _, o := range f.stated {
		switch o := o.Object.(type) {
		case *kernel.Addr, *kernel.Route, *kernel.Sysctl, *kernel.NFT, *kernel.Element, *kernel.ConntrackFlows, *kernel.ForwardRule,
			*kernel.Qdisc, *kernel.TCFilter, *kernel.AnnounceAddresses, *kernel.WaitForCarrier, *kernel.Neigh, *kernel.Rule:
		case *kernel.Bridge:
			if f.links[link{s, name}] == nil && s == kernel.Host && o.Name == name {
				return true
			}
		case *kernel.Up:
			if o.In == s && o.Link == name {
				return true
			}
		case *kernel.Veth:
			if s == kernel.Host && o.Name == name || s == o.PeerSide && o.PeerName == name {
				return true
			}
		case *kernel.IFB:
			if s == kernel.Host && o.Name == name {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// settled makes everything stated so before a question about all of it.
func (f facts) settled() error {
	if len(f.stated) == 0 {
		return nil
	}
	return f.flush()
}

func (f facts) Links(s kernel.Side) ([]*kernel.LinkInfo, error) {
	if err := f.settled(); err != nil {
		return nil, err
	}
	return f.engine.Links(s)
}

func (f facts) Routes(s kernel.Side, family byte, table int) ([]kernel.RouteInfo, error) {
	if err := f.settled(); err != nil {
		return nil, err
	}
	return f.engine.Routes(s, family, table)
}

func (f facts) Rules(s kernel.Side, family byte) ([]kernel.RuleInfo, error) {
	if err := f.settled(); err != nil {
		return nil, err
	}
	return f.engine.Rules(s, family)
}

func (f facts) DefaultLink(s kernel.Side) (string, error) {
	if err := f.settled(); err != nil {
		return "", err
	}
	return f.engine.DefaultLink(s)
}

// Sysctl of a link that is stated, or one that is stated itself, is known once it is there.
func (f facts) Sysctl(s kernel.Side, key string) (string, error) {
	for _, o := range f.stated {
		set, ok := o.Object.(*kernel.Sysctl)
		if strings.Contains(key, "/conf/") || strings.Contains(key, "/neigh/") || ok && set.In == s && set.Key == key {
			if err := f.flush(); err != nil {
				return "", err
			}
			break
		}
	}
	return f.engine.Sysctl(s, key)
}

// LinkTo is foreseen where nothing can stand against it: a route to the very
// address. The kernel's answer counts before what is stated is there, if that is
// the same; else afterwards.
func (f facts) LinkTo(a netip.Addr) (string, error) {
	by, bits := "", -1
	for _, o := range f.stated {
		var p netip.Prefix
		var on string
		switch o := o.Object.(type) {
		case *kernel.Addr:
			if o.In == kernel.Host {
				p, on = o.Prefix.Masked(), o.Link
			}
		case *kernel.Route:
			if o.In == kernel.Host && o.Table == 0 {
				p, on = o.Dst, o.Link
			}
		}
		if p.IsValid() && p.Contains(a) && p.Bits() > bits {
			by, bits = on, p.Bits()
		}
	}
	if bits == a.BitLen() {
		return by, nil
	}
	if bits >= 0 {
		if now, err := f.engine.LinkTo(a); err == nil && now == by {
			return by, nil
		}
		if err := f.flush(); err != nil {
			return "", err
		}
	}
	return f.engine.LinkTo(a)
}

func (f facts) Uplinks() (out []string) {
	routes, err := f.engine.Routes(kernel.Host, kernel.IPv6, 0)
	if err != nil {
		return nil // no IPv6 here
	}
	for _, r := range routes {
		if r.Protocol != kernel.ProtocolRA || r.Dst.Bits() != 0 {
			continue
		}
		if l, err := f.engine.LinkByIndex(kernel.Host, r.Index); err == nil {
			out = append(out, l.Name)
		}
	}
	return out
}
