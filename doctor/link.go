package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// carrier: an interface that is up, whose other side is not.
func carrier(f *Facts, a *Attachment) []Finding {
	in, end := link(a.Inside, a.IfName), link(f.Host, a.HostEnd)
	if in == nil || !in.Up || in.Carrier || in.Kind == "tun" || end != nil && !end.Up {
		return nil // a tap has none until its virtual machine starts
	}
	x := Finding{Name: "no-carrier", Problem: a.IfName + " in the container is up and has no carrier", Follows: "the container reaches nothing at all",
		Mend: "bring up what it is connected to: a cable, a switch's port, the other end of a pair"}
	if end != nil {
		x.Mend = a.in("ip link set "+a.IfName+" down") + " && " + a.repair()
	}
	return []Finding{x}
}

// macChanged: neighbours and switches know the address that the ADD gave.
func macChanged(_ *Facts, a *Attachment) []Finding {
	in := link(a.Inside, a.IfName)
	if in == nil || a.MAC == "" || in.MAC == a.MAC {
		return nil
	}
	for _, t := range kernel.Of[*kernel.LinkAttrs](a.Objects) {
		if t.Set.MAC != "" {
			return nil // that is looked at by itself
		}
	}
	return []Finding{{Name: "mac-changed", Problem: fmt.Sprintf("%s in the container has the hardware address %s, and was given %s", a.IfName, in.MAC, a.MAC),
		Follows: "filters against spoofing drop its frames, and neighbours send to the former address until they ask again",
		Mend:    a.in("ip link set " + a.IfName + " address " + a.MAC)}}
}

// macPinned: what antiSpoof pins is the hardware address of the moment, which tuning may have changed since.
func macPinned(f *Facts, a *Attachment) []Finding {
	in := link(a.Inside, a.IfName)
	if in == nil || len(macChanged(f, a)) > 0 {
		return nil
	}
	for _, e := range kernel.Of[*kernel.Element](a.Objects) {
		if e.Set != "antispoof-macs" {
			continue
		}
		if _, mac, _ := strings.Cut(e.Key, " . "); mac != in.MAC {
			return []Finding{{Name: "mac-pinned-otherwise", Problem: fmt.Sprintf("%s in the container has the hardware address %s; antiSpoof lets through what comes from %s", a.IfName, in.MAC, mac),
				Follows: "all that the container sends is dropped",
				Mend:    "have bridge set the hardware address in place of tuning (runtimeConfig.mac), and attach the container again"}}
		}
	}
	return nil
}

// duplicates: an address that somebody else has, too.
func duplicates(f *Facts, a *Attachment) (out []Finding) {
	in := link(a.Inside, a.IfName)
	if in == nil {
		return nil
	}
	for _, h := range a.Inside.Addrs {
		if h.Index != in.Index || !a.mine(h.Prefix.Addr()) {
			continue
		}
		again := a.in(fmt.Sprintf("ip addr del %s dev %s", h.Prefix, a.IfName)) + " && " + a.repair()
		switch {
		case h.Duplicate:
			out = append(out, Finding{Name: "address-duplicate", Problem: fmt.Sprintf("%s on %s: another host on the link has it (duplicate address detection)", h.Prefix, a.IfName),
				Follows: "the kernel does not use the address", Mend: again})
		case h.Tentative && in.Up && in.Carrier:
			out = append(out, Finding{Name: "address-tentative", Problem: fmt.Sprintf("%s on %s waits for duplicate address detection", h.Prefix, a.IfName),
				Follows: "the address cannot be used yet", Mend: again})
		}
	}
	for _, p := range a.Addrs {
		for _, h := range f.Host.Addrs {
			if h.Prefix.Addr() == p.Addr() && !a.gateway(p.Addr()) {
				name := byIndex(f.Host, h.Index).Name
				out = append(out, Finding{Name: "address-duplicate", Problem: fmt.Sprintf("the host has %s, too, on %s", p.Addr(), name),
					Follows: "the host takes packets to the container for its own", Mend: fmt.Sprintf("ip addr del %s dev %s", h.Prefix, name)})
			}
		}
		out = append(out, a.twins(f, p.Addr())...)
	}
	return out
}

func (a *Attachment) twins(f *Facts, addr netip.Addr) (out []Finding) {
	for _, b := range f.Attachments {
		if b == a || b.Inside == nil || b.Bridge != a.Bridge || a.Bridge == "" || b.Netns == a.Netns || b.mine(addr) {
			continue
		}
		for _, h := range b.Inside.Addrs {
			l := byIndex(b.Inside, h.Index)
			if h.Prefix.Addr() == addr && l != nil && l.Name == b.IfName {
				out = append(out, Finding{Name: "address-duplicate", Problem: fmt.Sprintf("container %s on the same bridge has %s, too", b.Container, addr),
					Follows: "packets to the address reach now the one, now the other", Mend: b.in(fmt.Sprintf("ip addr del %s dev %s", h.Prefix, b.IfName))})
			}
		}
	}
	return out
}

func (a *Attachment) mine(addr netip.Addr) bool {
	return slices.ContainsFunc(a.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
}

func (a *Attachment) gateway(addr netip.Addr) bool { return slices.Contains(a.Gateways, addr) }

// neighbours: what the neighbour tables of both sides say of each other.
func neighbours(f *Facts, a *Attachment) (out []Finding) {
	in, to := link(a.Inside, a.IfName), a.arrives(f)
	if in == nil || to == nil {
		return nil
	}
	for _, n := range a.Inside.Neighs {
		if n.Index != in.Index || !a.gateway(n.IP) || !f.hasAddr(n.IP, to.Index) {
			continue
		}
		switch {
		case n.Usable() && n.MAC != "" && n.MAC != to.MAC:
			out = append(out, Finding{Name: "gateway-neighbour-wrong", Problem: fmt.Sprintf("the container takes %s for its gateway %s, whose hardware address is %s", n.MAC, n.IP, to.MAC),
				Follows: "the container reaches its subnet, and nothing beyond", Mend: a.in(fmt.Sprintf("ip neigh del %s dev %s", n.IP, a.IfName))})
		case n.Failed() && len(a.Lost) == 0:
			out = append(out, Finding{Name: "gateway-unanswered", Problem: fmt.Sprintf("the gateway %s did not answer the container's last question for its hardware address", n.IP),
				Follows: "the container reaches its subnet at most", Mend: a.in(fmt.Sprintf("ip neigh flush to %s dev %s", n.IP, a.IfName))})
		}
	}
	for _, n := range f.Host.Neighs {
		if n.Index == to.Index && a.mine(n.IP) && n.Usable() && n.MAC != "" && n.MAC != in.MAC {
			out = append(out, Finding{Name: "neighbour-wrong", Problem: fmt.Sprintf("the host takes %s for the container's %s, whose hardware address is %s", n.MAC, n.IP, in.MAC),
				Follows: "the host, and whoever comes through it, does not reach the container", Mend: fmt.Sprintf("ip neigh del %s dev %s", n.IP, to.Name)})
		}
	}
	return out
}

func (f *Facts) hasAddr(a netip.Addr, index int) bool {
	return slices.ContainsFunc(f.Host.Addrs, func(h kernel.AddrInfo) bool { return h.Index == index && h.Prefix.Addr() == a })
}

// port: how the host end is in its bridge.
func port(f *Facts, a *Attachment) (out []Finding) {
	end := link(f.Host, a.HostEnd)
	if end == nil || a.Bridge == "" || end.Master == 0 {
		return nil
	}
	if m := byIndex(f.Host, end.Master); m != nil && m.Name != a.Bridge {
		return []Finding{{Name: "port-on-other-bridge", Problem: fmt.Sprintf("%s is a port of %s, and was made one of %s", end.Name, m.Name, a.Bridge),
			Follows: "the container is on another network", Mend: "ip link set " + end.Name + " master " + a.Bridge}}
	}
	bridge := link(f.Host, a.Bridge)
	if s := end.PortState(); s != kernel.PortForwarding && end.Up && end.Carrier && bridge != nil && bridge.Up {
		out = append(out, Finding{Name: "port-blocked", Problem: fmt.Sprintf("%s is in state %d on %s (3: it forwards)", end.Name, s, a.Bridge),
			Follows: "the container reaches nothing at all", Mend: "bridge link set dev " + end.Name + " state 3"})
	}
	wanted := slices.ContainsFunc(kernel.Of[*kernel.Port](a.Objects), func(p *kernel.Port) bool { return p.Isolated })
	if end.Isolated() && !wanted {
		out = append(out, Finding{Name: "port-isolated", Problem: end.Name + " is an isolated port of " + a.Bridge + ", and was not made one",
			Follows: "the container does not reach other isolated ones", Mend: "bridge link set dev " + end.Name + " isolated off"})
	}
	return out
}

// mtu: along the way to the host, nothing tells a sender that a frame is too large.
func mtu(f *Facts, a *Attachment) (out []Finding) {
	in := link(a.Inside, a.IfName)
	if in == nil {
		return nil
	}
	end := link(f.Host, a.HostEnd)
	smallest := end
	if to := a.arrives(f); to != nil && end != nil && to.MTU < end.MTU {
		smallest = to
	}
	if smallest != nil && in.MTU > smallest.MTU {
		out = append(out, Finding{Name: "mtu-too-large", Problem: fmt.Sprintf("%s in the container has MTU %d, %s on the host %d", a.IfName, in.MTU, smallest.Name, smallest.MTU),
			Follows: "small packets pass, large ones vanish without a word: connections hang as soon as they carry something",
			Mend:    fmt.Sprintf("ip link set %s mtu %d", smallest.Name, in.MTU)})
	}
	for _, v4 := range []bool{true, false} {
		up := a.upstream(f, v4)
		via, known := a.defaultRoute(in, v4)
		if up == nil || !known || len(out) > 0 || up.MTU >= in.MTU || up.Name == "lo" || via.MTU > 0 && via.MTU <= up.MTU {
			continue
		}
		out = append(out, Finding{Name: "mtu-too-large", Problem: fmt.Sprintf("%s in the container has MTU %d, %s, by which the host sends its packets on, %d", a.IfName, in.MTU, up.Name, up.MTU),
			Follows: "where a firewall drops ICMP, connections to the outside hang as soon as they carry something; set mtu in the network's configuration",
			Mend:    a.in(fmt.Sprintf("ip%s route change default via %s dev %s mtu %d", six(via.Dst.Addr()), via.Via, a.IfName, up.MTU))})
	}
	return out
}

func (a *Attachment) defaultRoute(in *kernel.LinkInfo, v4 bool) (kernel.RouteInfo, bool) {
	for _, r := range a.Inside.Routes {
		if r.Index == in.Index && r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4 && r.Via.IsValid() {
			return r, true
		}
	}
	return kernel.RouteInfo{}, false
}
