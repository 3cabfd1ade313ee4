package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Switch speaks with the database of Open vSwitch for the objects below. Its
// library would triple the start of what runtimes call, so a plugin that needs
// it brings it along (UseSwitch), and this package knows only what to ask.
type Switch interface {
	// Ensure makes an object so, and returns when the switch has acted on it. It
	// tells whether it made what is to be undone.
	Ensure(Object) (made bool, err error)
	// Diff says what differs; absence is os.ErrNotExist.
	Diff(Object) ([]string, error)
	// Remove removes an object that carries its owner; absence is os.ErrNotExist,
	// and so is a switch that is not there.
	Remove(Object) error
	// RemoveMarked removes the ports whose owner's mark is dead.
	RemoveTagged(dead func(mark string) bool) error
	// UserSpace tells whether packets of a port go through a process, not the kernel.
	UserSpace(*OVSPort) (bool, error)
	Close()
}

// UseSwitch has the engine ask s for objects of Open vSwitch.
func (e *Engine) UseSwitch(s Switch) { e.ovs = s }

// ErrNoSwitch is what an object of Open vSwitch meets where no Switch came along.
var ErrNoSwitch = errors.New(`Open vSwitch is spoken with by the program fairlead alone: let the plugin "ovs" be a link to it`)

// OVSBridge is a bridge of Open vSwitch: used as it stands, or made.
type OVSBridge struct {
	base
	Name     string `json:",omitzero"`
	DB       string `json:",omitzero"` // the database: "unix:/path" or "tcp:address:port"
	MAC      string `json:",omitzero"` // of one that is made: it does not change with the ports
	Datapath string `json:",omitzero"` // of one that is made: "system", "netdev"; "": the kernel's where there is one
}

// OVSTunnel is a port of a bridge that leads to other hosts by VXLAN.
type OVSTunnel struct {
	base
	Name      string `json:",omitzero"`
	DB        string `json:",omitzero"`
	Bridge    string `json:",omitzero"`
	Network   string `json:",omitzero"` // that it was made for
	VNI       int    `json:",omitzero"`
	Remote    string `json:",omitzero"` // address, or "flow": flows say where to
	Local     string `json:",omitzero"` // address to send from; "": the route's
	Port      int    `json:",omitzero"` // UDP; 0: 4789
	VLAN      VLANs  `json:",omitzero"`
	Protected bool   `json:",omitzero"` // no frame goes from one such port to another
}

// OVSPort is the host's end of a veth pair as a port of a bridge.
type OVSPort struct {
	base
	Name    string `json:",omitzero"`
	DB      string `json:",omitzero"`
	Bridge  string `json:",omitzero"`
	Peer    string `json:",omitzero"` // the container's end
	VLAN    VLANs  `json:",omitzero"`
	OFPort  int    `json:",omitzero"` // number asked for; 0: the switch's choice
	IfaceID string `json:",omitzero"` // external_ids:iface-id, by which OVN knows it
	Owner   Owner  `json:",omitzero"`
}

// VLANs are those of a port: none (a trunk of all), an access port's, a trunk's,
// or a trunk with one that is untagged.
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
		return fmt.Errorf("%s is a bridge of the kernel's, not of Open vSwitch's", b.Name)
	}
	return e.ensureOVS(b)
}

func (b *OVSBridge) diff(e *Engine) ([]string, error) { return e.diffOVS(b) }
func (b *OVSBridge) remove(*Engine) error             { return nil }

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

func (t *OVSTunnel) ensure(e *Engine) error           { return e.ensureOVS(t) }
func (t *OVSTunnel) diff(e *Engine) ([]string, error) { return e.diffOVS(t) }
func (t *OVSTunnel) remove(*Engine) error             { return nil }

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

// ensure makes the port. Where a process forwards its packets, the container's
// end computes checksums itself: what the kernel leaves to hardware, in the hope
// that a packet stays inside, would arrive without.
func (p *OVSPort) ensure(e *Engine) error {
	if err := e.ensureOVS(p); err != nil {
		return err
	}
	user, err := e.ovs.UserSpace(p)
	if err != nil || !user {
		return err
	}
	return e.setTxChecksum(Container, p.Peer, false)
}

func (p *OVSPort) diff(e *Engine) ([]string, error) {
	d, err := e.diffOVS(p)
	if err != nil {
		return d, err
	}
	if user, err := e.ovs.UserSpace(p); err != nil || !user {
		return d, err
	}
	on, err := e.txChecksum(Container, p.Peer)
	if on {
		d = append(d, p.Peer+" in the container leaves checksums to hardware, which a datapath in user space has not")
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil // that it is missing its veth says
	}
	return d, err
}

func (p *OVSPort) remove(e *Engine) error {
	if e.ovs == nil {
		return ErrNoSwitch
	}
	return e.ovs.Remove(p)
}

func (e *Engine) ensureOVS(o Object) error {
	if e.ovs == nil {
		return ErrNoSwitch
	}
	if err := e.flush(); err != nil {
		return err
	}
	made, err := e.ovs.Ensure(o)
	if made {
		e.noteCreated(o)
	}
	return err
}

func (e *Engine) diffOVS(o Object) ([]string, error) {
	if e.ovs == nil {
		return nil, ErrNoSwitch
	}
	return e.ovs.Diff(o)
}
