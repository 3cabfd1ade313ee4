package link

import (
	"cmp"
	"errors"
	"net/netip"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// DefaultBridge is the bridge of a configuration that names none.
const DefaultBridge = "cni0"

// Bridge returns the plugin that connects a host's containers to a bridge.
func Bridge() plugin.Plugin {
	return plugin.Plugin{
		Name: "bridge", About: "connects the containers of a host to a bridge, which can be their gateway",
		New: func() plugin.Config { return &bridge{Bridge: DefaultBridge} },
	}
}

type bridge struct {
	plugin.Conf
	Bridge                    string      `json:"bridge"`
	IsGateway                 bool        `json:"isGateway"`
	IsDefaultGateway          bool        `json:"isDefaultGateway"`
	ForceAddress              bool        `json:"forceAddress"`
	IPMasq                    bool        `json:"ipMasq"`
	IPMasqBackend             *string     `json:"ipMasqBackend"`
	MTU                       int         `json:"mtu"`
	HairpinMode               bool        `json:"hairpinMode"`
	PromiscMode               bool        `json:"promiscMode"`
	VLAN                      int         `json:"vlan"`
	VLANTrunk                 []VLANRange `json:"vlanTrunk"`
	PreserveDefaultVLAN       bool        `json:"preserveDefaultVlan"`
	MACSpoofCheck             bool        `json:"macspoofchk"`
	AntiSpoof                 bool        `json:"antiSpoof"`
	EnableDAD                 bool        `json:"enabledad"`
	PortIsolation             bool        `json:"portIsolation"`
	BridgeNetfilter           bool        `json:"bridgeNetfilter"`
	DisableContainerInterface bool        `json:"disableContainerInterface"`
	StaticMAC                 string      `json:"mac"`
	LinkType                  string      `json:"linkType"`

	mac         string
	defaultVLAN int // that the bridge gives a new port; 0: none
}

func (c *bridge) Validate(a *plugin.Attachment) (err error) {
	if c.mac, err = c.Conf.MAC(a, c.StaticMAC); err != nil {
		return err
	}
	if err := cni.ValidateInterfaceName(c.Bridge); err != nil {
		return cni.Invalid(c.Raw, "bridge", err.Error())
	}
	c.IsGateway = c.IsGateway || c.IsDefaultGateway
	if err := checkMTU(&c.Conf, c.MTU); err != nil {
		return err
	}
	switch {
	case c.HairpinMode && c.PromiscMode:
		return cni.Invalid(c.Raw, "promiscMode", "cannot set hairpin mode and promiscuous mode at the same time")
	case c.DisableContainerInterface && c.IPAM.Type != "":
		return cni.Invalid(c.Raw, "disableContainerInterface", "cannot use IPAM when the container's interface is left down: remove ipam")
	}
	if err := c.validateVLANs(); err != nil {
		return err
	}
	if err := checkLinkType(&c.Conf, c.LinkType); err != nil {
		return err
	}
	if err := checkAntiSpoof(&c.Conf, c.AntiSpoof); err != nil {
		return err
	}
	return checkMasqBackend(&c.Conf, c.IPMasqBackend)
}

func (c *bridge) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.MTU = mtuOf(a, &c.Conf, c.MTU)
	l, err := a.Facts.Link(kernel.Host, c.Bridge)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		c.Bridge = cmp.Or(l.Name, c.Bridge) // the configuration may have an alternative name
	}
	br := &kernel.Bridge{
		Name: c.Bridge, MTU: c.MTU,
		Promisc: c.PromiscMode, VLANFiltering: c.filtersVLANs(), Netfilter: c.BridgeNetfilter,
	}
	if err == nil && l.MAC != kernel.NoMAC {
		br.MAC = l.MAC
	} else {
		br.MAC = kernel.MAC("bridge", a.Facts.HostID(), c.Bridge)
	}
	c.defaultVLAN = 1 // the kernel's, of a new bridge
	if err == nil {
		c.defaultVLAN = l.DefaultVLAN()
	}
	v := veth(a, c.mac, c.MTU, c.Bridge)
	v.Type = c.LinkType
	r.Interfaces = append(r.Interfaces,
		cni.Interface{Name: br.Name, Mac: br.MAC},
		cni.Interface{Name: v.Name, Mac: v.MAC},
		cni.Interface{Name: v.PeerName, Mac: v.PeerMAC, Sandbox: a.Netns})
	list := kernel.Objects{br}
	gateway, err := c.gatewayVLAN(a, r)
	if err != nil {
		return nil, err
	}
	list = append(list, gateway...)
	list = append(list, v)
	if c.HairpinMode || c.PortIsolation {
		list = append(list, &kernel.Port{Link: v.Name, Hairpin: c.HairpinMode, Isolated: c.PortIsolation})
	}
	list = append(list, c.portVLANs(v.Name, c.VLANTrunk)...)
	if c.MACSpoofCheck {
		list = append(list, spoofCheck(a, v.Name, v.PeerMAC)...)
	}
	if c.AntiSpoof {
		list = append(list, pinPort(a, v.Name, v.PeerMAC, c.IPAM.Type == "dhcp")...)
	}
	return append(list, noRouters(v.Name), &kernel.Up{Link: v.Name, AfterFirewall: c.AntiSpoof}), nil
}

func (c *bridge) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	if c.DisableContainerInterface {
		return nil, nil
	}
	var list kernel.Objects
	if c.IsGateway {
		gateways, err := c.gateways(r)
		if err != nil {
			return nil, err
		}
		forwarding, err := plugin.Forwarding(a, r)
		if err != nil {
			return nil, err
		}
		list = append(gateways, forwarding...)
	}
	if c.AntiSpoof {
		list = append(list, pinAddresses(a, a.LinkName("veth"), r, "bridge")...)
	}
	list = append(list, plugin.Interface{Name: a.IfName, DAD: c.EnableDAD, NoDAD: !c.EnableDAD}.Objects(r)...)
	list = append(list, plugin.Routes(a.IfName, r)...)
	if c.IPMasq {
		list = append(list, masquerade(a, r, deref(c.IPMasqBackend))...)
	}
	return list, nil
}

// gateways returns the bridge's addresses. It completes the result with a gateway where IPAM returned none, and with
// default routes if isDefaultGateway is set.
func (c *bridge) gateways(r *cni.Result) (list kernel.Objects, err error) {
	hasDefault := map[bool]bool{}
	for _, rt := range r.Routes {
		hasDefault[rt.Dst.Addr().Is4()] = hasDefault[rt.Dst.Addr().Is4()] || isDefault(rt)
	}
	for i := range r.IPs {
		ip := &r.IPs[i]
		if !ip.Gateway.IsValid() {
			if ip.Gateway, err = gatewayOf(ip.Address); err != nil {
				return nil, err
			}
		}
		if v4 := ip.Address.Addr().Is4(); c.IsDefaultGateway && !hasDefault[v4] {
			hasDefault[v4] = true
			r.Routes = append(r.Routes, cni.Route{Dst: defaultRoute(v4), GW: ip.Gateway})
		}
		list = append(list, &kernel.Addr{
			Link: c.gatewayLink(), Prefix: netip.PrefixFrom(ip.Gateway, ip.Address.Bits()), IsShared: true, ForceAddress: c.ForceAddress,
		})
	}
	return list, nil
}

// isDefault reports whether a route makes isDefaultGateway add none. As with the reference plugin, a route without a
// gateway does not if it is in another table than main.
func isDefault(r cni.Route) bool {
	inMain := r.Table == nil || *r.Table == 0 || *r.Table == kernel.MainTable
	return r.Dst.Bits() == 0 && (inMain || r.GW.IsValid())
}

func defaultRoute(v4 bool) netip.Prefix {
	if v4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// ReferenceObjects returns the rules of the reference plugin.
func (c *bridge) ReferenceObjects(a *plugin.Attachment) (list kernel.Objects) {
	if c.IPMasq {
		list = ruleset.ReferenceMasquerade(a)
	}
	if c.MACSpoofCheck {
		list = append(list, ruleset.ReferenceSpoofCheck(a)...)
	}
	return list
}
