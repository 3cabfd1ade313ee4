package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// attachment is the attachment whose objects are created.
type attachment struct {
	kernel.Owner
	number int
}

// blocks returns the building blocks of attachments by name. In "macvlan:up0", "up0" is the argument.
func blocks() map[string]func(a attachment, arg string) kernel.Objects {
	return map[string]func(attachment, string) kernel.Objects{
		"loopback":  loopback,
		"bridge":    bridged,
		"pair":      pair,
		"ptp":       routed,
		"macvlan":   func(a attachment, on string) kernel.Objects { return a.sub("macvlan", "bridge", on) },
		"ipvlan":    func(a attachment, on string) kernel.Objects { return a.sub("ipvlan", "l2", on) },
		"vlan":      func(a attachment, on string) kernel.Objects { return a.sub("vlan", "", on) },
		"dummy":     dummy,
		"tap":       tap,
		"device":    device,
		"masq":      masqueraded,
		"port":      published,
		"bandwidth": shaped,
		"sysctl":    sysctl,
		"sbr":       bySource,
		"vrf":       inVRF,
	}
}

// objects returns the objects for building blocks separated by spaces.
func (a attachment) objects(text string) (list kernel.Objects, err error) {
	known := blocks()
	for w := range strings.FieldsSeq(text) {
		name, arg, _ := strings.Cut(w, ":")
		f, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("the floor has no building block %q", name)
		}
		list = append(list, f(a, arg)...)
	}
	return list, nil
}

// gateway is the gateway of the network that the floor's attachments are in.
func gateway() netip.Addr { return netip.MustParseAddr("10.77.0.1") }

func (a attachment) addr() netip.Addr {
	n := a.number + 2
	return netip.AddrFrom4([4]byte{10, 77, byte(n >> 8), byte(n)})
}

func (a attachment) prefix() netip.Prefix { return netip.PrefixFrom(a.addr(), 16) }

func (a attachment) port() string { return a.LinkName("veth") }

// in returns an address and the link's up state.
func (a attachment) in() kernel.Objects {
	return kernel.Objects{
		&kernel.Addr{In: kernel.Container, Link: a.IfName, Prefix: a.prefix()},
		&kernel.Up{In: kernel.Container, Link: a.IfName},
	}
}

func (a attachment) away() *kernel.Route {
	return &kernel.Route{In: kernel.Container, Link: a.IfName, Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gateway()}
}

func (a attachment) veth(master string) *kernel.Veth {
	return &kernel.Veth{Name: a.port(), MAC: a.MAC("h"), PeerSide: kernel.Container, PeerName: a.IfName, PeerMAC: a.MAC("c"), Master: master, OwnerTag: a.Tag()}
}

func loopback(attachment, string) kernel.Objects {
	return kernel.Objects{&kernel.Up{In: kernel.Container, Link: "lo"}}
}

func bridged(a attachment, master string) kernel.Objects {
	list := kernel.Objects{a.veth(master), &kernel.Up{Link: a.port()}}
	return append(append(list, a.in()...), a.away())
}

// pair returns the veth pair for a switch outside the kernel.
func pair(a attachment, _ string) kernel.Objects {
	return append(kernel.Objects{a.veth(""), &kernel.Up{Link: a.port()}}, a.in()...)
}

func routed(a attachment, _ string) kernel.Objects {
	one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 32) }
	return kernel.Objects{
		a.veth(""),
		&kernel.Addr{Link: a.port(), Prefix: one(gateway())}, &kernel.Up{Link: a.port()},
		&kernel.Route{Dst: one(a.addr()), Link: a.port()},
		&kernel.Addr{In: kernel.Container, Link: a.IfName, Prefix: a.prefix(), NoRoute: true}, &kernel.Up{In: kernel.Container, Link: a.IfName},
		&kernel.Route{In: kernel.Container, Dst: one(gateway()), Link: a.IfName},
		&kernel.Route{In: kernel.Container, Dst: a.prefix().Masked(), Via: gateway(), Src: a.addr(), Link: a.IfName},
		a.away(),
	}
}

func (a attachment) sub(typ, mode, on string) kernel.Objects {
	s := &kernel.StackedLink{Type: typ, Name: a.IfName, Parent: on, Mode: mode, OwnerTag: a.Tag()}
	switch typ {
	case "macvlan":
		s.MAC = a.MAC("c")
	case "vlan":
		s.VLAN = 5
	}
	return append(kernel.Objects{s}, a.in()...)
}

func dummy(a attachment, _ string) kernel.Objects {
	return append(kernel.Objects{&kernel.Dummy{Name: a.IfName, MAC: a.MAC("c"), OwnerTag: a.Tag()}}, a.in()...)
}

func tap(a attachment, _ string) kernel.Objects {
	return append(kernel.Objects{&kernel.Tap{Name: a.IfName, MAC: a.MAC("c"), OwnerTag: a.Tag()}}, a.in()...)
}

func device(a attachment, name string) kernel.Objects {
	return append(kernel.Objects{&kernel.HostDevice{Device: name, Name: a.IfName, OwnerTag: kernel.HostDeviceTag(a.Owner, name)}}, a.in()...)
}
