package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Switch is a client of the Open vSwitch database. Its library would triple the start time of a plugin, so the program
// that needs it passes one to UseSwitch.
type Switch interface {
	// The Ensure methods create or update an object and return after the switch has applied it. EnsurePort returns
	// whether it created the port, so that an undo must remove it.
	EnsureBridge(context.Context, *OVSBridge) error
	EnsureTunnel(context.Context, *OVSTunnel) error
	EnsurePort(context.Context, *OVSPort) (created bool, err error)
	// RestorePort creates a port, or replaces the one with its name, whoever its owner is.
	RestorePort(context.Context, *OVSPort) error
	// The Diff methods return what differs. They return os.ErrNotExist if the object is missing.
	DiffBridge(context.Context, *OVSBridge) ([]string, error)
	DiffTunnel(context.Context, *OVSTunnel) ([]string, error)
	DiffPort(context.Context, *OVSPort) ([]string, error)
	// RemovePort removes a port that carries its owner. It returns os.ErrNotExist if the port or the switch is missing.
	RemovePort(context.Context, *OVSPort) error
	// RemoveTagged removes the ports of dead owners.
	RemoveTagged(ctx context.Context, dead func(tag string) bool) error
	// UserSpace reports whether a process, not the kernel, forwards the packets of a port.
	UserSpace(context.Context, *OVSPort) (bool, error)
	Close()
}

// UseSwitch makes the engine use s for objects of Open vSwitch.
func (e *Engine) UseSwitch(s Switch) { e.ovs = s }

// ErrNoSwitch is the error for an object of Open vSwitch in a program without a Switch.
var ErrNoSwitch = errors.New(`only the program fairlead has an Open vSwitch client: make the plugin "ovs" a link to it`)

// OVSBridge is a bridge of Open vSwitch. An existing one is used as it is.
type OVSBridge struct {
	base
	Name     string `json:",omitzero"`
	DB       string `json:",omitzero"` // database: "unix:/path" or "tcp:address:port"
	MAC      string `json:",omitzero"` // of a bridge that is created, so that it does not change with the ports
	Datapath string `json:",omitzero"` // of a bridge that is created: "system", "netdev"; "": the kernel's if it has one
}

// OVSTunnel is a VXLAN port of a bridge, which leads to other hosts.
type OVSTunnel struct {
	base
	Name      string `json:",omitzero"`
	DB        string `json:",omitzero"`
	Bridge    string `json:",omitzero"`
	Network   string `json:",omitzero"` // the network that it was created for
	VNI       int    `json:",omitzero"`
	Remote    string `json:",omitzero"` // address, or "flow": OpenFlow rules choose the remote end
	Local     string `json:",omitzero"` // source address; "": as the route says
	Port      int    `json:",omitzero"` // UDP; 0: 4789
	VLAN      VLANs  `json:",omitzero"`
	Protected bool   `json:",omitzero"` // no frame passes from one protected port to another
}

// OVSPort is the host end of a veth pair as a port of a bridge.
type OVSPort struct {
	base
	Name    string `json:",omitzero"`
	DB      string `json:",omitzero"`
	Bridge  string `json:",omitzero"`
	Peer    string `json:",omitzero"` // container end
	VLAN    VLANs  `json:",omitzero"`
	OFPort  int    `json:",omitzero"` // requested port number; 0: the switch's choice
	IfaceID string `json:",omitzero"` // external_ids:iface-id, by which OVN identifies the port
	Owner   Owner  `json:",omitzero"`
}

// VLANs are the VLANs of a port: none (a trunk of all), an access port, a trunk, or a trunk with one untagged VLAN.
type VLANs struct {
	Tag    int    `json:",omitzero"` // 0: none
	Trunks string `json:",omitzero"` // "5,10-20"; "": none
}

func (v VLANs) String() (s string) {
	if v.Tag > 0 {
		s += fmt.Sprintf(" tag=%d", v.Tag)
	}
	if v.Trunks != "" {
		s += " trunks=" + v.Trunks
	}
	if v.Tag > 0 && v.Trunks != "" {
		s += " vlan_mode=native-untagged"
	}
	return s
}

func (b *OVSBridge) kind() string { return "ovs-bridge" }
func (b *OVSBridge) Side() Side   { return Host }
func (b *OVSBridge) Shared() bool { return true }

func (b *OVSBridge) String() string {
	s := "ovs-vsctl --may-exist add-br " + b.Name + " -- set bridge " + b.Name
	if b.Datapath != "" {
		s += " datapath_type=" + b.Datapath
	}
	return s + " other_config:hwaddr=" + b.MAC
}

func (b *OVSBridge) ensure(e *Engine) error {
	if l, err := e.Link(Host, b.Name); err == nil && l.Kind == "bridge" {
		return fmt.Errorf("%s is a Linux bridge, not an Open vSwitch bridge", b.Name)
	}
	if err := e.readySwitch(); err != nil {
		return err
	}
	return e.ovs.EnsureBridge(e.ctx, b)
}

func (b *OVSBridge) diff(e *Engine) ([]string, error) {
	if e.ovs == nil {
		return nil, ErrNoSwitch
	}
	return e.ovs.DiffBridge(e.ctx, b)
}

func (b *OVSBridge) remove(*Engine) error { return nil }

func (t *OVSTunnel) kind() string { return "ovs-tunnel" }
func (t *OVSTunnel) Side() Side   { return Host }
func (t *OVSTunnel) Shared() bool { return true }

func (t *OVSTunnel) String() string {
	s := "ovs-vsctl --may-exist add-port " + t.Bridge + " " + t.Name + t.VLAN.String()
	if t.Protected {
		s += " protected=true"
	}
	s += fmt.Sprintf(" -- set interface %s type=vxlan options:key=%d options:remote_ip=%s", t.Name, t.VNI, t.Remote)
	if t.Local != "" {
		s += " options:local_ip=" + t.Local
	}
	if t.Port > 0 {
		s += fmt.Sprintf(" options:dst_port=%d", t.Port)
	}
	return s
}

func (t *OVSTunnel) ensure(e *Engine) error {
	if err := e.readySwitch(); err != nil {
		return err
	}
	return e.ovs.EnsureTunnel(e.ctx, t)
}

func (t *OVSTunnel) diff(e *Engine) ([]string, error) {
	if e.ovs == nil {
		return nil, ErrNoSwitch
	}
	return e.ovs.DiffTunnel(e.ctx, t)
}

func (t *OVSTunnel) remove(*Engine) error { return nil }

func (p *OVSPort) kind() string { return "ovs-port" }
func (p *OVSPort) Side() Side   { return Host }
func (p *OVSPort) Shared() bool { return false }

func (p *OVSPort) String() string {
	s := "ovs-vsctl add-port " + p.Bridge + " " + p.Name + p.VLAN.String()
	var set []string
	if p.OFPort > 0 {
		set = append(set, fmt.Sprintf("ofport_request=%d", p.OFPort))
	}
	if p.IfaceID != "" {
		set = append(set, "external_ids:iface-id="+p.IfaceID)
	}
	if len(set) > 0 {
		s += " -- set interface " + p.Name + " " + strings.Join(set, " ")
	}
	return s
}

func (p *OVSPort) ensure(e *Engine) error {
	if err := e.readySwitch(); err != nil {
		return err
	}
	created, err := e.ovs.EnsurePort(e.ctx, p)
	if created {
		e.noteCreated(p)
	}
	if err != nil {
		return err
	}
	return p.checksum(e)
}

// restore replaces the port. Its name derives from the owner, so nobody else has it.
func (p *OVSPort) restore(e *Engine) error {
	if err := e.readySwitch(); err != nil {
		return err
	}
	if err := e.ovs.RestorePort(e.ctx, p); err != nil {
		return err
	}
	return p.checksum(e)
}

// checksum makes the container end compute checksums itself if a process forwards its packets. Otherwise the kernel
// leaves them to the peer, and packets would arrive without checksums.
func (p *OVSPort) checksum(e *Engine) error {
	user, err := e.ovs.UserSpace(e.ctx, p)
	if err != nil || !user {
		return err
	}
	return e.setTxChecksum(Container, p.Peer, false)
}

func (p *OVSPort) diff(e *Engine) ([]string, error) {
	if e.ovs == nil {
		return nil, ErrNoSwitch
	}
	d, err := e.ovs.DiffPort(e.ctx, p)
	if err != nil {
		return d, err
	}
	if user, err := e.ovs.UserSpace(e.ctx, p); err != nil || !user {
		return d, err
	}
	on, err := e.txChecksum(Container, p.Peer)
	if on {
		d = append(d, p.Peer+" in the container offloads checksums, and a datapath in user space cannot compute them")
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil // the veth reports that it is missing
	}
	return d, err
}

func (p *OVSPort) remove(e *Engine) error {
	if e.ovs == nil {
		return ErrNoSwitch
	}
	return e.ovs.RemovePort(e.ctx, p)
}

// readySwitch writes queued changes to the kernel, so that the switch finds the links of its ports.
func (e *Engine) readySwitch() error {
	if e.ovs == nil {
		return ErrNoSwitch
	}
	return e.flush()
}
