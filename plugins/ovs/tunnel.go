package ovs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/kernel"
)

// ensureTunnel creates a tunnel, or updates the network's own. If containers of another network use it with other
// settings, that is an error, because both would share it.
func (d *db) ensureTunnel(t *kernel.OVSTunnel) error {
	err := d.makeTunnel(t)
	for range retries {
		_, taken := errors.AsType[*ovsdb.ConstraintViolation](err)
		if !taken && !errors.Is(err, os.ErrNotExist) { // or its rows went between two reads: another process creates it again
			break
		}
		time.Sleep(retryPause)
		err = d.makeTunnel(t) // another process was first
	}
	return err
}

const (
	retries    = 5
	retryPause = 20 * time.Millisecond
)

func (d *db) makeTunnel(t *kernel.OVSTunnel) error {
	want := tunnelRows(t)
	diff, err := d.diffRows(t.Bridge, t.Name, want)
	if err == nil && len(diff) == 0 {
		return d.inUse(t.Name)
	}
	absent := errors.Is(err, os.ErrNotExist)
	old, err := d.named("Port", t.Name, append(vlanColumns(), "external_ids")...)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && absent { // another process may have created it since: do not replace its port
		if diff, err := d.diffRows(t.Bridge, t.Name, want); err == nil && len(diff) == 0 {
			return d.inUse(t.Name)
		}
	}
	if of := owner(old).Network; err == nil && of != t.Network {
		other, err := d.diffRows(t.Bridge, t.Name, withoutOwner(want))
		if err == nil && len(other) == 0 {
			err = d.inUse(t.Name)
		}
		if err != nil || len(other) == 0 {
			return err
		}
		used, err := d.tunnelUsed(old)
		if err != nil {
			return err
		}
		if used || of == "" { // or other software made it
			return fmt.Errorf("network %q has this tunnel with other settings (%s): use another vxlanID or bridge", of, other[0])
		}
	}
	made, err := d.put(t.Bridge, t.Name, want, old)
	if err != nil && made && !unanswered(err) {
		err = errors.Join(err, d.drop(t.Name)) // shared, so no undo removes it
	}
	return err
}

// withoutOwner returns a tunnel's rows without its owner.
func withoutOwner(r rows) rows {
	r.port = maps.Clone(r.port)
	delete(r.port, "external_ids")
	return r
}
