package ovs

import (
	"context"
	"errors"
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

// EnsureBridge implements kernel.Switch.
func (s *ovsSwitch) EnsureBridge(ctx context.Context, b *kernel.OVSBridge) error {
	d, err := s.open(ctx, b.DB)
	if err != nil {
		return err
	}
	return d.ensureBridge(b, s.network)
}

// EnsureTunnel implements kernel.Switch.
func (s *ovsSwitch) EnsureTunnel(ctx context.Context, t *kernel.OVSTunnel) error {
	d, err := s.open(ctx, t.DB)
	if err != nil {
		return err
	}
	return d.ensureTunnel(t)
}

// EnsurePort implements kernel.Switch.
func (s *ovsSwitch) EnsurePort(ctx context.Context, p *kernel.OVSPort) (created bool, err error) {
	d, err := s.open(ctx, p.DB)
	if err != nil {
		return false, err
	}
	return d.ensurePort(p)
}

// RestorePort implements kernel.Switch.
func (s *ovsSwitch) RestorePort(ctx context.Context, p *kernel.OVSPort) error {
	d, err := s.open(ctx, p.DB)
	if err != nil {
		return err
	}
	return d.restorePort(p)
}

// DiffBridge implements kernel.Switch.
func (s *ovsSwitch) DiffBridge(ctx context.Context, b *kernel.OVSBridge) ([]string, error) {
	d, err := s.forDiff(ctx, b.DB)
	if err != nil {
		return nil, err
	}
	return d.diffBridge(b)
}

// DiffTunnel implements kernel.Switch.
func (s *ovsSwitch) DiffTunnel(ctx context.Context, t *kernel.OVSTunnel) ([]string, error) {
	d, err := s.forDiff(ctx, t.DB)
	if err != nil {
		return nil, err
	}
	return d.diffPort(t.Bridge, t.Name, withoutOwner(tunnelRows(t))) // another network may have created it
}

// DiffPort implements kernel.Switch.
func (s *ovsSwitch) DiffPort(ctx context.Context, p *kernel.OVSPort) ([]string, error) {
	d, err := s.forDiff(ctx, p.DB)
	if err != nil {
		return nil, err
	}
	return d.diffPort(p.Bridge, p.Name, portRows(p))
}

// forDiff opens a database. Its error is not os.ErrNotExist, which would mean that the object is missing.
func (s *ovsSwitch) forDiff(ctx context.Context, addr string) (*db, error) {
	d, err := s.open(ctx, addr)
	if err != nil {
		return nil, errors.New(err.Error())
	}
	return d, nil
}

// RemovePort implements kernel.Switch. Bridges and tunnels are shared and stay.
func (s *ovsSwitch) RemovePort(ctx context.Context, p *kernel.OVSPort) error {
	d, err := s.open(ctx, p.DB)
	if err != nil {
		return err
	}
	return d.removePort(p)
}

// RemoveTagged removes the network's ports whose owner is dead.
func (s *ovsSwitch) RemoveTagged(ctx context.Context, dead func(tag string) bool) error {
	d, err := s.open(ctx, s.addr)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.removeTagged(s.network, dead)
}

// UserSpace reports whether a port's bridge has a user-space datapath.
func (s *ovsSwitch) UserSpace(ctx context.Context, p *kernel.OVSPort) (bool, error) {
	d, err := s.open(ctx, p.DB)
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

// Switch returns a client for callers that have the objects of a network but no configuration.
func Switch(network string) kernel.Switch { return newSwitch("", network) }
