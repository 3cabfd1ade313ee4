package ovs

import (
	"errors"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Plugin joins containers by a bridge of Open vSwitch.
func Plugin() plugin.Plugin {
	return plugin.Plugin{
		Name: "ovs", About: "joins containers by a bridge of Open vSwitch, in VLANs and through VXLAN",
		New: func() plugin.Config { return &ovs{SocketFile: defaultSocket, db: "unix:" + defaultSocket} },
	}
}

const defaultSocket = "/var/run/openvswitch/db.sock"

type ovs struct {
	plugin.Conf
	Bridge       string      `json:"bridge"`
	DatapathType string      `json:"datapathType"`
	VLAN         int         `json:"vlan"`
	Trunk        []vlanRange `json:"trunk"`
	MTU          int         `json:"mtu"`
	OFPort       int         `json:"ofport_request"`
	SocketFile   string      `json:"socket_file"`
	StaticMAC    string      `json:"mac"`
	DeviceID     string      `json:"deviceID"`

	VXLANID     *int     `json:"vxlanID"`
	VXLANRemote []string `json:"vxlanRemote"`
	VXLANLocal  string   `json:"vxlanLocal"`
	VXLANPort   int      `json:"vxlanPort"`

	db      string // where the database is: "unix:/path" or "tcp:address:port"
	mac     string // the container's, "": derived
	ifaceID string
	vlans   kernel.VLANs
}

func (c *ovs) Validate(a *plugin.Attachment) (err error) {
	addr, problem := database(c.SocketFile)
	if problem == "" {
		c.db = addr // whatever else is wrong: DEL looks there
	}
	if c.mac, err = c.Conf.MAC(a, c.StaticMAC); err != nil {
		return err
	}
	c.ifaceID, _ = a.Args.Get("OvnPort")
	if c.Bridge == "" {
		return cni.Invalid(c.Raw, "bridge", "missing: want the name of a bridge of Open vSwitch, which is made if it is not there")
	}
	if err := cni.ValidateInterfaceName(c.Bridge); err != nil {
		return cni.Invalid(c.Raw, "bridge", err.Error())
	}
	if problem != "" {
		return cni.Invalid(c.Raw, "socket_file", problem)
	}
	switch {
	case c.DatapathType != "" && c.DatapathType != "system" && c.DatapathType != userSpace:
		return cni.Invalid(c.Raw, "datapathType", `want "system" (the kernel's) or "netdev" (a process's); absent, the kernel's where it has one`)
	case c.MTU < 0 || c.MTU > 65535:
		return cni.Invalid(c.Raw, "mtu", "want 0 (the kernel's choice) to 65535 bytes")
	case c.OFPort < 0 || c.OFPort > maxOFPort:
		return cni.Invalid(c.Raw, "ofport_request", "want 0 (the switch's choice) or a port's number from 1 to 65279")
	case c.DeviceID != "" || c.Runtime.DeviceID != "":
		return cni.Invalid(c.Raw, "deviceID", "a device of the host is not put into a switch: the container's interface is a veth; see host-device")
	}
	if err := c.validateVLANs(); err != nil {
		return err
	}
	return c.validateVXLAN()
}

const (
	userSpace = "netdev" // Bridge.datapath_type
	maxOFPort = 65279    // ovs-vswitchd.conf.db(5), Interface.ofport_request
)

func (c *ovs) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	br := &kernel.OVSBridge{Name: c.Bridge, DB: c.db, MAC: kernel.MAC("bridge", a.Facts.HostID(), c.Bridge), Datapath: c.DatapathType}
	l, err := a.Facts.Link(kernel.Host, c.Bridge)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil && l.MAC != kernel.NoMAC {
		br.MAC = l.MAC
	}
	v := c.veth(a)
	r.Interfaces = append(r.Interfaces,
		cni.Interface{Name: br.Name, Mac: br.MAC},
		cni.Interface{Name: v.Name, Mac: v.MAC},
		cni.Interface{Name: v.PeerName, Mac: v.PeerMAC, Sandbox: a.Netns})
	list := append(kernel.Objects{br}, c.tunnels(a.Network)...)
	// A router's advertisement that a container sends is not for the host (CVE-2020-10749).
	noRouters := &kernel.Sysctl{Key: "net/ipv6/conf/" + v.Name + "/accept_ra", Value: "0", Link: v.Name, Optional: true}
	// Up comes after the switch has taken the port: if it still had one of that name,
	// of a DEL a moment ago, letting go of it takes the device of the name down.
	return append(list, v, noRouters, c.port(a), &kernel.Up{Link: v.Name}), nil
}

// Addressed states the container's end: the switch itself has no address.
func (c *ovs) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	list := plugin.Interface{Name: a.IfName}.Objects(r)
	return append(append(list, plugin.Routes(a.IfName, r)...), &kernel.WaitForCarrier{Link: c.veth(a).Name}), nil
}

func (c *ovs) veth(a *plugin.Attachment) *kernel.Veth {
	mac := c.mac
	if mac == "" {
		mac = a.MAC("container")
	}
	return &kernel.Veth{
		Name: a.LinkName("veth"), MAC: a.MAC("host"), PeerSide: kernel.Container, PeerName: a.IfName, PeerMAC: mac,
		MTU: c.MTU, SwitchPort: true, OwnerTag: a.Tag(),
	}
}

func (c *ovs) port(a *plugin.Attachment) *kernel.OVSPort {
	return &kernel.OVSPort{
		Name: a.LinkName("veth"), DB: c.db, Bridge: c.Bridge, Peer: a.IfName,
		VLAN: c.vlans, OFPort: c.OFPort, IfaceID: c.ifaceID, Owner: a.Owner,
	}
}

// Switch brings along what speaks with the database.
func (c *ovs) Switch(a *plugin.Attachment) kernel.Switch { return newSwitch(c.db, a.Network) }

// Ready tells whether the database answers.
func (c *ovs) Ready(*plugin.Attachment) error {
	s := newSwitch(c.db, c.Name)
	defer s.Close()
	if _, err := s.open(c.db); err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "%w", err)
	}
	return nil
}
