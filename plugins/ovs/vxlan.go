package ovs

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

const (
	maxVNI      = 1<<24 - 1
	defaultPort = 4789   // UDP, RFC 7348
	flow        = "flow" // options:remote_ip: flows choose the destination
)

func (c *ovs) validateVXLAN() error {
	if c.VXLANID == nil {
		return c.withoutVXLAN()
	}
	switch {
	case *c.VXLANID < 0 || *c.VXLANID > maxVNI:
		return cni.Invalid(c.Raw, "vxlanID", "want a VXLAN network identifier from 0 to 16777215")
	case c.VXLANPort < 0 || c.VXLANPort > 65535:
		return cni.Invalid(c.Raw, "vxlanPort", "want 0 (4789) or a UDP port up to 65535")
	}
	for i, r := range c.VXLANRemote {
		key := fmt.Sprintf("vxlanRemote[%d]", i)
		if !isAddress(r) && (r != flow || len(c.VXLANRemote) > 1) {
			return cni.Invalid(c.Raw, key, `want the address of another host, or "flow" alone: flows choose the destination`)
		}
		if slices.Contains(c.VXLANRemote[:i], r) {
			return cni.Invalid(c.Raw, key, "is listed twice")
		}
	}
	if c.VXLANLocal != "" && !isAddress(c.VXLANLocal) {
		return cni.Invalid(c.Raw, "vxlanLocal", "want an address of this host")
	}
	return nil
}

func (c *ovs) withoutVXLAN() error {
	key := ""
	switch {
	case len(c.VXLANRemote) > 0:
		key = "vxlanRemote"
	case c.VXLANLocal != "":
		key = "vxlanLocal"
	case c.VXLANPort != 0:
		key = "vxlanPort"
	default:
		return nil
	}
	return cni.Invalid(c.Raw, key, "needs vxlanID")
}

func isAddress(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == ""
}

// tunnels returns a tunnel to each other host. Of several, none forwards frames that arrived through another: each host
// has a tunnel to each other, and frames would loop.
func (c *ovs) tunnels(network string) (list kernel.Objects) {
	if c.VXLANID == nil {
		return nil
	}
	remotes := c.VXLANRemote
	if len(remotes) == 0 {
		remotes = []string{flow}
	}
	for _, r := range remotes {
		list = append(list, &kernel.OVSTunnel{
			Name: tunnelName(c.Bridge, *c.VXLANID, r), DB: c.db, Bridge: c.Bridge, Network: network,
			VNI: *c.VXLANID, Remote: r, Local: c.VXLANLocal, Port: c.VXLANPort, VLAN: c.vlans, Protected: len(remotes) > 1,
		})
	}
	return list
}

// tunnelName returns a name with the VXLAN identifier and a hash of what else distinguishes tunnels.
func tunnelName(bridge string, vni int, remote string) string {
	return kernel.Owner{Network: bridge, ContainerID: fmt.Sprint(vni), IfName: remote}.LinkName(fmt.Sprintf("vx%d-", vni))
}
