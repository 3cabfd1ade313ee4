package main

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/kernel"
)

// These building blocks change an attachment that another one created.

func part(what, name, text string) *kernel.NFT {
	return &kernel.NFT{Family: "inet", Table: "floor", Kind: what, Name: name, Text: text}
}

func (a attachment) element(set, typ, key, value string) kernel.Objects {
	what := "set"
	text := typ
	if value != "" {
		what, text = "map", typ+" : ipv4_addr . inet_service"
	}
	return kernel.Objects{
		part("table", "", ""), part(what, set, text),
		&kernel.Element{Family: "inet", Table: "floor", Set: set, Type: text, Key: key, Value: value, OwnerTag: a.Tag()},
	}
}

func masqueraded(a attachment, _ string) kernel.Objects {
	return a.element("masquerade", "ipv4_addr", a.addr().String(), "")
}

// published returns the objects of a host port. The port is derived from the attachment's number, so it is unique.
func published(a attachment, _ string) kernel.Objects {
	return append(
		a.element("ports", "inet_proto . inet_service", fmt.Sprintf("tcp . %d", 1+a.number), a.addr().String()+" . 80"),
		a.element("hairpin", "inet_proto . ipv4_addr . inet_service", "tcp . "+a.addr().String()+" . 80", "")...)
}

// shaped limits both directions: a token bucket at the port, and one on an IFB that receives the container's outgoing
// packets.
func shaped(a attachment, _ string) kernel.Objects {
	ifb := a.LinkName("bwp")
	const rate, burst, limit = 125_000_000, 1_250_000, 4_375_000 // in bytes
	bucket := func(link string) *kernel.Qdisc {
		return &kernel.Qdisc{Link: link, Type: "tbf", Rate: rate, Burst: burst, Limit: limit}
	}
	return kernel.Objects{
		bucket(a.port()),
		&kernel.IFB{Name: ifb, MAC: a.MAC("i"), OwnerTag: a.Tag()}, &kernel.Up{Link: ifb}, bucket(ifb),
		&kernel.Qdisc{Link: a.port(), Type: "ingress"},
		&kernel.TCFilter{Link: a.port(), Parent: kernel.IngressHandle, Redirect: ifb, Priority: 1},
	}
}

func sysctl(attachment, string) kernel.Objects {
	return kernel.Objects{&kernel.Sysctl{In: kernel.Container, Key: "net/core/somaxconn", Value: "500"}}
}

func bySource(a attachment, _ string) kernel.Objects {
	from := netip.PrefixFrom(a.addr(), 32)
	const table = 100
	near := &kernel.Route{In: kernel.Container, Link: a.IfName, Dst: a.prefix().Masked(), Src: a.addr(), Table: table}
	far := a.away()
	far.Table = table
	return kernel.Objects{&kernel.Rule{In: kernel.Container, From: from, Table: table}, near, far}
}

func inVRF(a attachment, _ string) kernel.Objects {
	return kernel.Objects{
		&kernel.VRF{Name: "blue", Table: 1},
		&kernel.VRFMember{Link: a.IfName, VRF: "blue"},
	}
}
