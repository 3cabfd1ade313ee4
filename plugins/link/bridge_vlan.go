package link

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

func (c *bridge) filtersVLANs() bool { return c.VLAN != 0 || c.VLANTrunk != nil }

func (c *bridge) validateVLANs() error {
	if c.VLAN < 0 || c.VLAN > maxVLAN {
		return cni.Invalid(c.Raw, "vlan", "want a VLAN ID from 0 (none) to 4094")
	}
	if err := cni.ValidateInterfaceName(c.gatewayLink()); c.IsGateway && err != nil {
		return cni.Invalid(c.Raw, "bridge", "vlan with isGateway adds an interface BRIDGE.VLAN to the host: "+err.Error())
	}
	for i, v := range c.VLANTrunk {
		if problem := v.Problem(1, "1"); problem != "" {
			return cni.Invalid(c.Raw, fmt.Sprintf("vlanTrunk[%d]", i), problem)
		}
	}
	return nil
}

// portVLANs returns the VLANs of a port: one untagged, and the trunk's, tagged. As with the reference plugin, a VLAN that is
// also in the trunk is tagged, and a trunk without an untagged VLAN has VLAN 1 untagged.
func (c *bridge) portVLANs(port string, trunk []VLANRange) (list kernel.Objects) {
	untagged := func(id int) *kernel.PortVLAN {
		return &kernel.PortVLAN{Link: port, First: id, Last: id, PVID: true, Untagged: true}
	}
	native := c.VLAN
	if native == 0 && len(trunk) > 0 {
		native = 1
	}
	if n := c.defaultVLAN; !c.PreserveDefaultVLAN && native > 0 && n > 0 && native != n && !hasVLAN(trunk, n) {
		list = append(list, &kernel.PortVLAN{Link: port, First: n, Last: n, Delete: true})
	}
	if c.VLAN > 0 {
		list = append(list, untagged(c.VLAN))
	}
	for _, v := range trunk {
		if v.MinID != nil {
			list = append(list, &kernel.PortVLAN{Link: port, First: *v.MinID, Last: *v.MaxID})
		}
		if v.ID != nil {
			list = append(list, &kernel.PortVLAN{Link: port, First: *v.ID, Last: *v.ID})
		}
	}
	if c.VLAN == 0 && native > 0 {
		list = append(list, untagged(native))
	}
	return list
}

func hasVLAN(trunk []VLANRange, id int) bool {
	return slices.ContainsFunc(trunk, func(v VLANRange) bool {
		return v.ID != nil && *v.ID == id || v.MinID != nil && *v.MinID <= id && id <= *v.MaxID
	})
}

// gatewayLink returns the interface that has the gateway's addresses: the bridge or, with a VLAN, the host's interface
// in that VLAN.
func (c *bridge) gatewayLink() string {
	if c.VLAN == 0 {
		return c.Bridge
	}
	return fmt.Sprintf("%s.%d", c.Bridge, c.VLAN)
}

// gatewayVLAN returns the host's interface in the containers' VLAN: a veth pair whose other end is an access port of
// the bridge. As with the reference plugin, an interface of this name that somebody else created is used as it is.
func (c *bridge) gatewayVLAN(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	if c.VLAN == 0 || !c.IsGateway {
		return nil, nil
	}
	gateway := c.gatewayLink()
	port := kernel.Owner{Network: gateway}.LinkName("veth")
	if l, err := a.Facts.Link(kernel.Host, gateway); err == nil {
		// The port is asked for second: a concurrent ADD creates both at once.
		if _, err = a.Facts.Link(kernel.Host, port); errors.Is(err, os.ErrNotExist) {
			r.Interfaces = append(r.Interfaces, cni.Interface{Name: gateway, Mac: l.MAC})
			return kernel.Objects{&kernel.Up{Link: gateway, IsShared: true}}, nil
		} else if err != nil {
			return nil, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	v := &kernel.Veth{
		Name: port, MAC: kernel.MAC("vlan port", gateway), PeerSide: kernel.Host, PeerName: gateway, PeerMAC: kernel.MAC("vlan leg", gateway),
		MTU: c.MTU, Master: c.Bridge, IsShared: true,
	}
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: gateway, Mac: v.PeerMAC})
	noRA := noRouters(port)
	noRA.IsShared = true
	list := kernel.Objects{v, noRA}
	for _, o := range c.portVLANs(port, nil) {
		o.(*kernel.PortVLAN).IsShared = true
		list = append(list, o)
	}
	return append(list, &kernel.Up{Link: port, IsShared: true}, &kernel.Up{Link: gateway, IsShared: true}), nil
}
