package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// carrier reports an interface that is up without a carrier.
func carrier(f *Facts, a *Attachment) []Finding {
	in, end := a.Inside.Link(a.IfName), f.Host.Link(a.HostEnd)
	if in == nil || !in.Up || in.Carrier || in.Kind == "tun" || end != nil && !end.Up {
		return nil // a tap has no carrier until its virtual machine starts
	}
	x := Finding{Name: "no-carrier", Problem: a.IfName + " in the container is up and has no carrier", Effect: "the container reaches nothing at all",
		Fix: "bring up its other end: a cable, a switch port, or the other link of a pair"}
	if end != nil {
		x.Fix = a.in("ip link set "+a.IfName+" down") + " && " + a.repair()
	}
	return []Finding{x}
}

// macChanged reports another hardware address than ADD set: neighbours and switches know the old one.
func macChanged(_ *Facts, a *Attachment) []Finding {
	in := a.Inside.Link(a.IfName)
	if in == nil || a.MAC == "" || in.MAC == a.MAC {
		return nil
	}
	for _, t := range kernel.Of[*kernel.LinkAttrs](a.Objects) {
		if t.Set.MAC != "" {
			return nil // tuning's own object reports this
		}
	}
	return []Finding{{Name: "mac-changed", Problem: fmt.Sprintf("%s in the container has the hardware address %s; ADD set %s", a.IfName, in.MAC, a.MAC),
		Effect: "filters against spoofing drop its frames, and neighbours send to the old address until they resolve it again",
		Fix:    a.in("ip link set " + a.IfName + " address " + a.MAC)}}
}

// macPinned reports that antiSpoof pins a hardware address which tuning changed later.
func macPinned(f *Facts, a *Attachment) []Finding {
	in := a.Inside.Link(a.IfName)
	if in == nil || len(macChanged(f, a)) > 0 {
		return nil
	}
	for _, e := range kernel.Of[*kernel.Element](a.Objects) {
		if e.Set != "antispoof-macs" {
			continue
		}
		if _, mac, _ := strings.Cut(e.Key, " . "); mac != in.MAC {
			return []Finding{{Name: "mac-pinned-otherwise", Problem: fmt.Sprintf("%s in the container has the hardware address %s; antiSpoof accepts only %s", a.IfName, in.MAC, mac),
				Effect: "everything that the container sends is dropped",
				Fix:    "let bridge set the hardware address instead of tuning (runtimeConfig.mac), and attach the container again"}}
		}
	}
	return nil
}

// duplicates reports addresses that something else has as well.
func duplicates(f *Facts, a *Attachment) (out []Finding) {
	in := a.Inside.Link(a.IfName)
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
				Effect: "the kernel does not use the address", Fix: again})
		case h.Tentative && in.Up && in.Carrier:
			out = append(out, Finding{Name: "address-tentative", Problem: fmt.Sprintf("%s on %s waits for duplicate address detection", h.Prefix, a.IfName),
				Effect: "the address cannot be used yet", Fix: again})
		}
	}
	for _, p := range a.Addrs {
		for _, h := range f.Host.Addrs {
			l := byIndex(f.Host, h.Index) // nil: the link came or went between the lists
			if l != nil && h.Prefix.Addr() == p.Addr() && !a.gateway(p.Addr()) {
				name := l.Name
				out = append(out, Finding{Name: "address-duplicate", Problem: fmt.Sprintf("the host also has %s, on %s", p.Addr(), name),
					Effect: "the host treats packets to the container as its own", Fix: fmt.Sprintf("ip addr del %s dev %s", h.Prefix, name)})
			}
		}
		out = append(out, a.twins(f, p.Addr())...)
	}
	return out
}

func (a *Attachment) twins(f *Facts, addr netip.Addr) (out []Finding) {
	for _, b := range f.Attachments {
		if b == a || b.Inside == nil || b.Bridge != a.Bridge || a.Bridge == "" || b.Netns == a.Netns {
			continue
		}
		if b.mine(addr) {
			if b.vlans() == a.vlans() {
				out = append(out, Finding{Name: "address-duplicate", Problem: fmt.Sprintf("container %s of network %s on the same bridge also has %s", b.Container, b.Network, addr),
					Effect: "packets to the address reach one container or the other", Fix: separate(a, b) + ", and attach one of them again"})
			}
			continue
		}
		for _, h := range b.Inside.Addrs {
			l := byIndex(b.Inside, h.Index)
			if h.Prefix.Addr() == addr && l != nil && l.Name == b.IfName {
				out = append(out, Finding{Name: "address-duplicate", Problem: fmt.Sprintf("container %s on the same bridge also has %s", b.Container, addr),
					Effect: "packets to the address reach one container or the other", Fix: b.in(fmt.Sprintf("ip addr del %s dev %s", h.Prefix, b.IfName))})
			}
		}
	}
	return out
}

// separate says what to do about two attachments that were assigned the same addresses.
func separate(a, b *Attachment) string {
	if a.Network == b.Network {
		return fmt.Sprintf("give the containers %s and %s different addresses", min(a.Container, b.Container), max(a.Container, b.Container))
	}
	return fmt.Sprintf("give the networks %s and %s different subnets or ranges", min(a.Network, b.Network), max(a.Network, b.Network))
}

// vlans describes the VLANs of the host end. Bridge ports in different VLANs do not see each other's addresses.
func (a *Attachment) vlans() string {
	var out []string
	for _, v := range kernel.Of[*kernel.PortVLAN](a.Objects) {
		if v.PVID {
			out = append(out, fmt.Sprint(v.First))
		}
	}
	return strings.Join(out, ",")
}

func (a *Attachment) mine(addr netip.Addr) bool {
	return slices.ContainsFunc(a.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
}

func (a *Attachment) gateway(addr netip.Addr) bool { return slices.Contains(a.Gateways, addr) }

// neighbours reports wrong entries in the neighbour tables of both sides.
func neighbours(f *Facts, a *Attachment) (out []Finding) {
	in, to := a.Inside.Link(a.IfName), a.arrives(f)
	if in == nil || to == nil {
		return nil
	}
	for _, n := range a.Inside.Neighs {
		if n.Index != in.Index || !a.gateway(n.IP) || !f.hasAddr(n.IP, to.Index) {
			continue
		}
		switch {
		case n.Usable() && n.MAC != "" && n.MAC != to.MAC:
			out = append(out, Finding{Name: "gateway-neighbour-wrong", Problem: fmt.Sprintf("the container has the hardware address %s for its gateway %s, which has %s", n.MAC, n.IP, to.MAC),
				Effect: "the container reaches its subnet only", Fix: a.in(fmt.Sprintf("ip neigh del %s dev %s", n.IP, a.IfName))})
		case n.Failed() && len(a.Lost) == 0:
			out = append(out, Finding{Name: "gateway-unanswered", Problem: fmt.Sprintf("the gateway %s did not answer the container's last neighbour request", n.IP),
				Effect: "the container reaches its subnet at most", Fix: a.in(fmt.Sprintf("ip neigh flush to %s dev %s", n.IP, a.IfName))})
		}
	}
	for _, n := range f.Host.Neighs {
		if n.Index == to.Index && a.mine(n.IP) && n.Usable() && n.MAC != "" && n.MAC != in.MAC {
			out = append(out, Finding{Name: "neighbour-wrong", Problem: fmt.Sprintf("the host has the hardware address %s for the container's %s, which has %s", n.MAC, n.IP, in.MAC),
				Effect: "the host does not reach the container, and neither do others through the host", Fix: fmt.Sprintf("ip neigh del %s dev %s", n.IP, to.Name)})
		}
	}
	return out
}

func (f *Facts) hasAddr(a netip.Addr, index int) bool {
	return slices.ContainsFunc(f.Host.Addrs, func(h kernel.AddrInfo) bool { return h.Index == index && h.Prefix.Addr() == a })
}

// port reports how the host end differs as a bridge port.
func port(f *Facts, a *Attachment) (out []Finding) {
	end := f.Host.Link(a.HostEnd)
	if end == nil || a.Bridge == "" || end.Master == 0 {
		return nil
	}
	if m := byIndex(f.Host, end.Master); m != nil && m.Name != a.Bridge {
		return []Finding{{Name: "port-on-other-bridge", Problem: fmt.Sprintf("%s is a port of %s, and ADD made it a port of %s", end.Name, m.Name, a.Bridge),
			Effect: "the container is on another network", Fix: "ip link set " + end.Name + " master " + a.Bridge}}
	}
	bridge := f.Host.Link(a.Bridge)
	if s := end.PortState(); s != kernel.PortForwarding && end.Up && end.Carrier && bridge != nil && bridge.Up {
		out = append(out, Finding{Name: "port-blocked", Problem: fmt.Sprintf("%s is in state %d on %s (3 means forwarding)", end.Name, s, a.Bridge),
			Effect: "the container reaches nothing at all", Fix: "bridge link set dev " + end.Name + " state 3"})
	}
	wanted := slices.ContainsFunc(kernel.Of[*kernel.Port](a.Objects), func(p *kernel.Port) bool { return p.Isolated })
	if end.Isolated() && !wanted {
		out = append(out, Finding{Name: "port-isolated", Problem: end.Name + " is an isolated port of " + a.Bridge + ", and its network does not isolate ports",
			Effect: "the container does not reach other isolated ports", Fix: "bridge link set dev " + end.Name + " isolated off"})
	}
	return out
}

// mtu reports links on the way to the host with a smaller MTU: nothing tells the sender that a frame is too large.
func mtu(f *Facts, a *Attachment) (out []Finding) {
	in := a.Inside.Link(a.IfName)
	if in == nil {
		return nil
	}
	end := f.Host.Link(a.HostEnd)
	smallest := end
	if to := a.arrives(f); to != nil && end != nil && to.MTU < end.MTU {
		smallest = to
	}
	if smallest != nil && in.MTU > smallest.MTU {
		out = append(out, Finding{Name: "mtu-too-large", Problem: fmt.Sprintf("%s in the container has MTU %d, and %s on the host has %d", a.IfName, in.MTU, smallest.Name, smallest.MTU),
			Effect: "small packets pass and large ones are lost silently: connections hang when they carry data",
			Fix:    fmt.Sprintf("ip link set %s mtu %d", smallest.Name, in.MTU)})
	}
	for _, v4 := range []bool{true, false} {
		up := a.upstream(f, v4)
		via, known := a.defaultRoute(in, v4)
		if up == nil || !known || len(out) > 0 || up.MTU >= in.MTU || up.Name == "lo" || via.MTU > 0 && via.MTU <= up.MTU {
			continue
		}
		out = append(out, Finding{Name: "mtu-too-large", Problem: fmt.Sprintf("%s in the container has MTU %d, and %s, the next link on the host, has %d", a.IfName, in.MTU, up.Name, up.MTU),
			Effect: "if a firewall drops ICMP, outside connections hang when they carry data; set mtu in the network's configuration",
			Fix:    a.in(fmt.Sprintf("ip%s route change default via %s dev %s mtu %d", six(via.Dst.Addr()), via.Via, a.IfName, up.MTU))})
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
