package ovs

import (
	"context"
	"errors"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Plugin returns the plugin that connects containers to an Open vSwitch bridge.
func Plugin() plugin.Plugin {
	return plugin.Plugin{
		Name: "ovs", About: "connects containers to an Open vSwitch bridge, in VLANs and through VXLAN", Version: cni.Release(),
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

	db      string // address of the database: "unix:/path" or "tcp:address:port"
	mac     string // of the container; "": derived
	ifaceID string
	vlans   kernel.VLANs
}

func (c *ovs) Validate(a *plugin.Attachment) (err error) {
	addr, problem := database(c.SocketFile)
	if problem == "" {
		c.db = addr // also if other keys are invalid: DEL uses this database
	}
	if c.mac, err = c.Conf.MAC(a, c.StaticMAC); err != nil {
		return err
	}
	args, err := cni.ParseArgs(a.Args)
	if err != nil {
		return err
	}
	c.ifaceID, _ = args.Get("OvnPort")
	if c.Bridge == "" {
		return cni.Invalid(c.Raw, "bridge", "missing: want the name of an Open vSwitch bridge, which is created if it does not exist")
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
		return cni.Invalid(c.Raw, "deviceID", "a host device cannot be a switch port: the container's interface is a veth; see host-device")
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
	// The host must ignore router advertisements from the container (CVE-2020-10749).
	noRouters := &kernel.Sysctl{Key: "net/ipv6/conf/" + v.Name + "/accept_ra", Value: "0", Link: v.Name, Optional: true}
	// Set the link up after the switch has taken the port. If the switch still had a port of this name from a recent
	// DEL, releasing that one would set this device down.
	return append(list, v, noRouters, c.port(a), &kernel.Up{Link: v.Name}), nil
}

// Addressed returns the container's side: the switch itself has no address.
func (c *ovs) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	list := plugin.Interface{Name: a.IfName}.Objects(r)
	return append(list, plugin.Routes(a.IfName, r)...), nil
}

func (c *ovs) veth(a *plugin.Attachment) *kernel.Veth {
	mac := c.mac
	if mac == "" {
		mac = a.ContainerMAC()
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

// Switch returns the client for the switch's database.
func (c *ovs) Switch(a *plugin.Attachment) kernel.Switch { return newSwitch(c.db, a.Network) }

// Ready reports whether the database answers.
func (c *ovs) Ready(ctx context.Context, _ *plugin.Attachment) error {
	s := newSwitch(c.db, c.Name)
	defer s.Close()
	if _, err := s.open(ctx, c.db); err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "%w", err)
	}
	return nil
}
