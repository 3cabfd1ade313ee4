package link

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// PTP returns the plugin that connects a container to the host with a routed veth pair.
func PTP() plugin.Plugin {
	return plugin.Plugin{
		Name: "ptp", About: "connects a container to the host by a veth pair with routes on both sides",
		New: func() plugin.Config { return &ptp{} },
	}
}

type ptp struct {
	plugin.Conf
	IPMasq        bool    `json:"ipMasq"`
	IPMasqBackend *string `json:"ipMasqBackend"`
	MTU           int     `json:"mtu"`
	LinkType      string  `json:"linkType"`
	AntiSpoof     bool    `json:"antiSpoof"`
}

func (c *ptp) Validate(*plugin.Attachment) error {
	if err := checkMTU(&c.Conf, c.MTU); err != nil {
		return err
	}
	if err := checkLinkType(&c.Conf, c.LinkType); err != nil {
		return err
	}
	if c.IPAM.Type == "" {
		return cni.Invalid(c.Raw, "ipam.type", "want an IPAM plugin, for example \"host-local\": a routed link needs an address")
	}
	return checkMasqBackend(&c.Conf, c.IPMasqBackend)
}

// checkMTU rejects an MTU that no pair can have.
func checkMTU(c *plugin.Conf, mtu int) error {
	if mtu != 0 && (mtu < 68 || mtu > 65535) {
		return cni.Invalid(c.Raw, "mtu", "want 0 (the kernel's choice) or 68 to 65535 bytes")
	}
	return nil
}

// checkLinkType rejects unknown types of pairs.
func checkLinkType(c *plugin.Conf, typ string) error {
	if typ != "" && typ != "veth" && typ != kernel.Netkit {
		return cni.Invalid(c.Raw, "linkType", "want \"veth\" (the default) or \"netkit\" (kernel 6.7 and later)")
	}
	return nil
}

func (c *ptp) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	v := veth(a, "", mtuOf(a, &c.Conf, c.MTU), "")
	v.Type = c.LinkType
	r.Interfaces = append(r.Interfaces,
		cni.Interface{Name: v.Name, Mac: v.MAC},
		cni.Interface{Name: v.PeerName, Mac: v.PeerMAC, Sandbox: a.Netns})
	// Packets for the container wait for the host end's link-local address. Nobody else on this link can have it, so
	// skip the second of duplicate address detection.
	noWait := &kernel.Sysctl{Key: "net/ipv6/conf/" + v.Name + "/accept_dad", Value: "0", Link: v.Name, Optional: true}
	list := kernel.Objects{v, noRouters(v.Name), noWait}
	if c.AntiSpoof {
		list = append(list, pinLink(a, v.Name, v.PeerMAC, c.IPAM.Type == "dhcp")...)
	}
	return list, nil
}

func (c *ptp) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	host := a.LinkName("veth")
	list, err := plugin.Forwarding(a, r)
	if err != nil {
		return nil, err
	}
	firsts := firstOf(r.IPs)
	for i, ip := range r.IPs {
		if !ip.Gateway.IsValid() {
			return nil, cni.Invalid(c.Raw, "ipam", "ptp needs a gateway for "+ip.Address.String()+": the host's end of the link gets this address")
		}
		if firsts[single(ip.Gateway)] == i {
			list = append(list, &kernel.Addr{Link: host, Prefix: single(ip.Gateway)})
		}
	}
	if c.AntiSpoof {
		list = append(list, pinAddresses(a, host, r, "inet", "arp")...)
	}
	list = append(list, &kernel.Up{Link: host, AfterFirewall: c.AntiSpoof})
	for _, ip := range r.IPs {
		list = append(list, toContainer(single(ip.Address.Addr()), host))
	}
	list = append(list, plugin.Interface{Name: a.IfName, NoRoute: true}.Objects(r)...)
	for i, ip := range r.IPs {
		// All traffic goes through the host's end, also to neighbours in the subnet.
		if gw := single(ip.Gateway); firsts[gw] == i {
			list = append(list, &kernel.Route{In: kernel.Container, Dst: gw, Src: ip.Address.Addr(), Link: a.IfName})
		}
		if net := ip.Address.Masked(); firsts[net] == i {
			list = append(list, &kernel.Route{In: kernel.Container, Dst: net, Via: ip.Gateway, Src: ip.Address.Addr(), Link: a.IfName})
		}
	}
	list = append(list, plugin.Routes(a.IfName, r)...)
	if c.IPMasq {
		list = append(list, masquerade(a, r, deref(c.IPMasqBackend))...)
	}
	return list, nil
}

// firstOf maps each gateway and each subnet to the index of the first address that has it.
func firstOf(ips []cni.IP) map[netip.Prefix]int {
	first := map[netip.Prefix]int{}
	for i, ip := range slices.Backward(ips) {
		if ip.Gateway.IsValid() {
			first[single(ip.Gateway)] = i
		}
		if net := ip.Address.Masked(); net != single(ip.Gateway) {
			first[net] = i
		}
	}
	return first
}

// toContainer returns the host's route to a container's address. Its scope is host, as in the reference plugin: the
// kernel treats the address as local to the host.
func toContainer(dst netip.Prefix, link string) *kernel.Route {
	scope := kernel.ScopeHost
	return &kernel.Route{Dst: dst, Link: link, Scope: &scope}
}

// single returns the prefix that holds one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// veth returns the attachment's veth pair. Names and hardware addresses derive from the owner.
func veth(a *plugin.Attachment, mac string, mtu int, master string) *kernel.Veth {
	if mac == "" {
		mac = a.ContainerMAC()
	}
	return &kernel.Veth{
		Name: a.LinkName("veth"), MAC: a.MAC("host"),
		PeerSide: kernel.Container, PeerName: a.IfName, PeerMAC: mac,
		MTU: mtu, Master: master, OwnerTag: a.Tag(),
	}
}

// noRouters makes the host ignore router advertisements from a container (CVE-2020-10749).
func noRouters(link string) *kernel.Sysctl {
	return &kernel.Sysctl{Key: "net/ipv6/conf/" + link + "/accept_ra", Value: "0", Link: link, Optional: true}
}

// ReferenceObjects returns the reference plugin's masquerade rules.
func (c *ptp) ReferenceObjects(a *plugin.Attachment) kernel.Objects {
	if !c.IPMasq {
		return nil
	}
	return ruleset.ReferenceMasquerade(a)
}
