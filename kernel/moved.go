package kernel

import (
	"net/netip"
	"strings"
)

// Moved returns the objects of an attachment whose container link another program has moved into the container,
// renamed and configured. That program decides about routes, so they are missing.
func (l Objects) Moved(from, to string) (out Objects) {
	for _, o := range l {
		if s, ok := o.(movable); ok && o.Side() == Container || isVethOf(o, from) {
			out = append(out, s.moved(from, to))
		} else if o.Side() == Host {
			out = append(out, o)
		}
	}
	return out
}

// movable is an object that remains after Moved. moved returns it with the link's new name.
type movable interface {
	moved(from, to string) Object
}

func isVethOf(o Object, peer string) bool {
	v, ok := o.(*Veth)
	return ok && v.PeerSide == Container && v.PeerName == peer
}

func renamed(name, from, to string) string {
	if name == from {
		return to
	}
	return name
}

func (v *Veth) moved(from, to string) Object {
	c := *v
	c.PeerName = renamed(v.PeerName, from, to)
	return &c
}

func (s *StackedLink) moved(from, to string) Object {
	c := *s
	c.Name = renamed(s.Name, from, to)
	return &c
}

func (u *Up) moved(from, to string) Object {
	c := *u
	c.Link = renamed(u.Link, from, to)
	return &c
}

func (s *Sysctl) moved(from, to string) Object {
	c := *s
	c.Link = renamed(s.Link, from, to)
	c.Key = strings.Replace(s.Key, "/"+from+"/", "/"+to+"/", 1)
	return &c
}

func (a *Addr) moved(from, to string) Object {
	c := *a
	c.Link, c.Prefix, c.NoRoute, c.DAD = renamed(a.Link, from, to), a.InContainer(), false, true
	return &c
}

// InContainer returns the prefix that a program must assign which cannot suppress the route of the prefix.
func (a *Addr) InContainer() netip.Prefix {
	if a.NoRoute {
		return netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Addr().BitLen())
	}
	return a.Prefix
}
