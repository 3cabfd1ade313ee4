package gather

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/packet"
)

// recorded fills in what the record says.
func recorded(a *doctor.Attachment, r *attach.Record) {
	for _, v := range kernel.Of[*kernel.Veth](a.Objects) {
		if v.PeerSide == kernel.Container && v.PeerName == a.IfName {
			a.HostEnd, a.Bridge = v.Name, v.Master
		}
	}
	for _, addr := range kernel.Of[*kernel.Addr](a.Objects) {
		if addr.In == kernel.Container && addr.Link == a.IfName {
			a.Addrs = append(a.Addrs, addr.Prefix)
		}
	}
	for _, p := range r.Parts {
		a.Ports = append(a.Ports, p.Ports...)
		res, err := p.Result.Get()
		if err != nil || res == nil {
			continue
		}
		a.Gateways, a.Nameservers, a.Resolv = nil, nil, "the network's configuration (dns)"
		for _, ip := range res.IPs {
			if ip.Gateway.IsValid() {
				a.Gateways = append(a.Gateways, ip.Gateway)
			}
		}
		for _, i := range res.Interfaces {
			if i.Name == r.IfName && i.Sandbox != "" {
				a.MAC = i.Mac
			}
		}
		for _, s := range res.DNS.Nameservers {
			if ip, err := netip.ParseAddr(s); err == nil {
				a.Nameservers = append(a.Nameservers, ip)
			}
		}
	}
}

// outside returns an address for documentation (RFC 5737, RFC 3849) that represents everything outside the host.
func outside(v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
}

// paths asks the host's routing for the routes of the container's packets in both directions.
func (g *gatherer) paths(a *doctor.Attachment) {
	end := g.facts.Host.Link(a.HostEnd)
	if end == nil {
		return
	}
	in := cmp.Or(end.Master, end.Index)
	for _, p := range a.Addrs {
		path := doctor.Path{From: p.Addr()}
		var err error
		if path.Out, err = inspect.RoutePath(g.engine, outside(p.Addr().Is4()), p.Addr(), in); err != nil {
			path.Err = err.Error()
		}
		if name, err := g.engine.LinkTo(p.Addr()); err == nil {
			if back := g.facts.Host.Link(name); back != nil {
				path.Back = back.Index
			}
		}
		a.Paths = append(a.Paths, path)
		for _, h := range g.facts.Host.Links {
			if h.Index == in || h.Index == path.Out {
				g.sysctl("net/ipv4/conf/" + h.Name + "/forwarding")
			}
		}
	}
}

// held reads the owners of the container's addresses, if host-local assigned them.
func (g *gatherer) held(a *doctor.Attachment, r *attach.Record) {
	if !slices.ContainsFunc(r.Parts, func(p attach.Part) bool { return p.IPAM == "host-local" }) {
		return
	}
	expected := ipam.Owner{ContainerID: r.ContainerID, IfName: r.IfName}
	found := make([]doctor.HeldAddr, len(a.Addrs))
	dirs := slices.DeleteFunc(slices.Clone(g.addressDirs), func(d gc.HostLocalDir) bool { return d.Network != r.Network })
	if len(dirs) == 0 { // it was deleted
		dirs = []gc.HostLocalDir{{Path: filepath.Join(g.LibDir, "networks"), Network: r.Network}}
	}
	for _, d := range dirs {
		for i, p := range a.Addrs {
			owner, err := ipam.OwnerOf(d.Path, d.Network, p.Addr())
			free := errors.Is(err, os.ErrNotExist)
			if err != nil && !free {
				g.miss("addresses of "+r.Network, err)
				return
			}
			h := doctor.HeldAddr{File: filepath.Join(d.Path, d.Network, p.Addr().String()), Addr: p.Addr(), Owner: owner, Expected: expected, Free: free}
			// A network whose ipam.dataDir has changed has two directories.
			if found[i].File == "" || found[i].Free || owner.ContainerID == expected.ContainerID {
				found[i] = h
			}
		}
	}
	list, _ := r.Objects() // another version of Fairlead may have written it
	someOfHost := slices.ContainsFunc(list, func(o kernel.Object) bool { m, ok := o.(*kernel.HostDevice); return ok && m.Network })
	for _, h := range found {
		if h.File != "" && !(h.Free && someOfHost) {
			a.Held = append(a.Held, h)
		}
	}
}

// pingTimeout limits the wait for the answer of a gateway.
const pingTimeout = time.Second

func (g *gatherer) ping(ctx context.Context, a *doctor.Attachment) {
	ns, err := netns.Open(a.Netns)
	if err != nil {
		g.miss(a.Netns, err)
		return
	}
	defer ns.Close()
	index := 0
	if l := a.Inside.Link(a.IfName); l != nil {
		index = l.Index
	}
	for _, gw := range a.Gateways {
		err := packet.Ping(ctx, ns, gw, index, pingTimeout)
		if err != nil && !errors.Is(err, context.Canceled) {
			a.Silent = append(a.Silent, gw)
		}
	}
}
