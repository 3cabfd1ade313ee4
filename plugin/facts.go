package plugin

import (
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

// foresee is a link that the session makes and nothing stated changes. It has a
// number that no link has, and when it is there, what the kernel says of it.
func (f facts) foresee(s kernel.Side, name string) (l *kernel.LinkInfo) {
	for i, o := range f.stated {
		before := l
		if l = kernel.PlanLink(o.Object, s, name, l); l != nil && l != before {
			l.Index, l.Peer = l.Index-2*i, l.Peer-2*i
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
	exists := f.links[link{s, name}] != nil
	for _, o := range f.stated {
		if kernel.MayChangeLink(o.Object, s, name, exists) {
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
		if strings.Contains(key, "/conf/") || strings.Contains(key, "/neigh/") || kernel.SetsSysctl(o.Object, s, key) {
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
		d, ok := kernel.DestinationOf(o.Object)
		if ok && d.Side == kernel.Host && d.Table == 0 && d.Prefix.IsValid() && d.Prefix.Contains(a) && d.Prefix.Bits() > bits {
			by, bits = d.Link, d.Prefix.Bits()
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
