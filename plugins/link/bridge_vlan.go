package link

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

func (c *bridge) filtersVLANs() bool { return c.VLAN != 0 || c.VLANTrunk != nil }

func (c *bridge) validateVLANs() error {
	if c.VLAN < 0 || c.VLAN > maxVLAN {
		return cni.Invalid(c.Raw, "vlan", "want a VLAN ID from 0 (none) to 4094")
	}
	for i, v := range c.VLANTrunk {
		if problem := v.Problem(1, "1"); problem != "" {
			return cni.Invalid(c.Raw, fmt.Sprintf("vlanTrunk[%d]", i), problem)
		}
	}
	return nil
}

// portVLANs returns the VLANs of the container's port: the trunk's, tagged, and one untagged. Like the reference plugin, a
// trunk without "vlan" has VLAN 1 untagged.
func (c *bridge) portVLANs(port string) kernel.Objects {
	untagged := c.VLAN
	if untagged == 0 && len(c.VLANTrunk) > 0 {
		untagged = 1
	}
	list := c.noDefaultVLAN(port, untagged)
	for _, v := range c.VLANTrunk {
		if v.MinID != nil {
			list = append(list, &kernel.PortVLAN{Link: port, First: *v.MinID, Last: *v.MaxID})
		}
		if v.ID != nil {
			list = append(list, &kernel.PortVLAN{Link: port, First: *v.ID, Last: *v.ID})
		}
	}
	return append(list, untaggedVLAN(port, untagged)...)
}

// noDefaultVLAN removes the bridge's default VLAN from a port, unless the port keeps it.
func (c *bridge) noDefaultVLAN(port string, untagged int) kernel.Objects {
	if c.PreserveDefaultVLAN || untagged < 2 || c.trunkHas(1) {
		return nil
	}
	return kernel.Objects{&kernel.PortVLAN{Link: port, First: 1, Last: 1, Delete: true}}
}

func untaggedVLAN(port string, id int) kernel.Objects {
	if id == 0 {
		return nil
	}
	return kernel.Objects{&kernel.PortVLAN{Link: port, First: id, Last: id, PVID: true, Untagged: true}}
}

func (c *bridge) trunkHas(id int) bool {
	return slices.ContainsFunc(c.VLANTrunk, func(v VLANRange) bool {
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
// the bridge.
func (c *bridge) gatewayVLAN(r *cni.Result) kernel.Objects {
	if c.VLAN == 0 || !c.IsGateway {
		return nil
	}
	gateway := c.gatewayLink()
	port := kernel.Owner{Network: gateway}.LinkName("veth")
	v := &kernel.Veth{
		Name: port, MAC: kernel.MAC("vlan port", gateway), PeerSide: kernel.Host, PeerName: gateway, PeerMAC: kernel.MAC("vlan leg", gateway),
		MTU: c.MTU, Master: c.Bridge, IsShared: true,
	}
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: gateway, Mac: v.PeerMAC})
	noRA := noRouters(port)
	noRA.IsShared = true
	list := kernel.Objects{v, noRA}
	access := bridge{VLAN: c.VLAN, PreserveDefaultVLAN: c.PreserveDefaultVLAN}
	for _, o := range access.portVLANs(port) {
		o.(*kernel.PortVLAN).IsShared = true
		list = append(list, o)
	}
	return append(list, &kernel.Up{Link: port, IsShared: true}, &kernel.Up{Link: gateway, IsShared: true})
}
