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

// ensureTunnel makes a tunnel, or brings the network's own up to date. One that
// another network has otherwise is an error: the two would be one.
func (d *db) ensureTunnel(t *kernel.OVSTunnel) error {
	err := d.makeTunnel(t)
	for range retries {
		_, taken := errors.AsType[*ovsdb.ConstraintViolation](err)
		if !taken && !errors.Is(err, os.ErrNotExist) { // or its rows went between two looks: another makes it anew
			break
		}
		time.Sleep(retryPause)
		err = d.makeTunnel(t) // another was first
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
	old, err := d.named("Port", t.Name, "_uuid", "external_ids")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if of := owner(old).Network; err == nil && of != t.Network {
		other, err := d.diffRows(t.Bridge, t.Name, without(want))
		if err == nil && len(other) == 0 {
			err = d.inUse(t.Name)
		}
		if err != nil || len(other) == 0 {
			return err
		}
		return fmt.Errorf("network %q has this tunnel otherwise (%s): give this one another vxlanID or bridge", of, other[0])
	}
	made, err := d.put(t.Bridge, t.Name, want, old)
	if err != nil && made && !unanswered(err) {
		err = errors.Join(err, d.drop(t.Name)) // shared, so no undo takes it away
	}
	return err
}

// without is a tunnel whoever it was made for.
func without(r rows) rows {
	r.port = maps.Clone(r.port)
	delete(r.port, "external_ids")
	return r
}
