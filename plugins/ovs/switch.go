package ovs

import (
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/kernel"
)

// ovsSwitch is one operation's client for the databases that its objects name.
type ovsSwitch struct {
	addr    string // from the configuration
	network string
	dbs     map[string]*db
}

func newSwitch(addr, network string) *ovsSwitch {
	return &ovsSwitch{addr: addr, network: network, dbs: map[string]*db{}}
}

// Ensure creates or updates an object. made reports whether it created one that an undo must remove.
func (s *ovsSwitch) Ensure(o kernel.Object) (made bool, err error) {
	d, err := s.open(dbOf(o))
	if err != nil {
		return false, err
	}
	switch o := o.(type) {
	case *kernel.OVSBridge:
		return false, d.ensureBridge(o)
	case *kernel.OVSTunnel:
		return false, d.ensureTunnel(o)
	case *kernel.OVSPort:
		return d.ensurePort(o)
	}
	return false, fmt.Errorf("%s is not an Open vSwitch object", o)
}

// Diff returns how an object differs.
func (s *ovsSwitch) Diff(o kernel.Object) ([]string, error) {
	d, err := s.open(dbOf(o))
	if err != nil {
		return nil, errors.New(err.Error()) // without os.ErrNotExist, which would mean that the object is missing
	}
	switch o := o.(type) {
	case *kernel.OVSBridge:
		return d.diffBridge(o)
	case *kernel.OVSTunnel:
		return d.diffPort(o.Bridge, o.Name, tunnelRows(o))
	case *kernel.OVSPort:
		return d.diffPort(o.Bridge, o.Name, portRows(o))
	}
	return nil, fmt.Errorf("%s is not an Open vSwitch object", o)
}

// Remove removes a port of the object's owner. Bridges and tunnels are shared and stay.
func (s *ovsSwitch) Remove(o kernel.Object) error {
	p, ok := o.(*kernel.OVSPort)
	if !ok {
		return nil
	}
	d, err := s.open(p.DB)
	if err != nil {
		return err
	}
	return d.removePort(p)
}

// RemoveTagged removes the network's ports whose owner is dead.
func (s *ovsSwitch) RemoveTagged(dead func(tag string) bool) error {
	d, err := s.open(s.addr)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.removeTagged(s.network, dead)
}

// UserSpace reports whether a port's bridge has a user-space datapath.
func (s *ovsSwitch) UserSpace(p *kernel.OVSPort) (bool, error) {
	d, err := s.open(p.DB)
	if err != nil {
		return false, err
	}
	b, err := d.named("Bridge", p.Bridge, "datapath_type")
	if errors.Is(err, os.ErrNotExist) {
		err = nil // the bridge object reports that it is missing
	}
	return b.text("datapath_type") == userSpace, err
}

// Close closes the connections.
func (s *ovsSwitch) Close() {
	for _, d := range s.dbs {
		d.close()
	}
	clear(s.dbs)
}

func dbOf(o kernel.Object) string {
	switch o := o.(type) {
	case *kernel.OVSBridge:
		return o.DB
	case *kernel.OVSTunnel:
		return o.DB
	case *kernel.OVSPort:
		return o.DB
	}
	return ""
}

// Switch returns a client for callers that have the objects of a network but no configuration.
func Switch(network string) kernel.Switch { return newSwitch("", network) }
