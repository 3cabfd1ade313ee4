package podnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// collection is the state of one GC.
type collection struct {
	m       *Manager
	began   time.Time
	ids     []string                    // pods that have a note
	created map[string]time.Time        // of their notes; none for a pod whose note cannot be read
	valid   map[string]bool             // IDs
	keep    map[string][]cni.Attachment // by network
	kept    map[keptAttachment]bool     // the same
}

type keptAttachment struct {
	network string
	cni.Attachment
}

// beginCollection notes which pods exist. With an error, it has those that it could read.
func (m *Manager) beginCollection() (*collection, error) {
	c := &collection{m: m, began: time.Now(), created: map[string]time.Time{}, valid: map[string]bool{}}
	var err error
	c.ids, err = m.notes.ids()
	for _, id := range c.ids {
		if n, err := m.notes.read(id); err == nil {
			c.created[id] = n.Created
		}
	}
	return c, err
}

// tearDownInvalid tears down the pods that had a note at the beginning and are not valid.
func (c *collection) tearDownInvalid(ctx context.Context) error {
	var errs []error
	for _, id := range c.ids {
		if c.valid[id] {
			continue
		}
		if err := c.tearDownOld(ctx, id, c.created[id]); err != nil {
			errs = append(errs, fmt.Errorf("collect pod %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// tearDownOld tears down a pod unless another operation holds it, or it was set up again since its note was listed. The
// times are compared for equality only, because a clock may be set.
func (c *collection) tearDownOld(ctx context.Context, id string, created time.Time) error {
	unlock, free, err := c.m.notes.tryLock(id)
	if err != nil || !free {
		return err
	}
	defer unlock()
	n, err := c.m.notes.read(id)
	if errors.Is(err, os.ErrNotExist) || err == nil && !n.Created.Equal(created) {
		return nil
	}
	bounded, cancel := c.m.bounded(ctx)
	defer cancel()
	return c.m.tearDown(bounded, id)
}

// collectNetworks runs GC on the loopback network and on every network of the configuration. Attachments that are not
// to be kept are removed.
func (c *collection) collectNetworks(ctx context.Context) error {
	if err := c.attachments(); err != nil {
		return err // without the list, attachments of valid pods would be removed
	}
	lo, err := loopback()
	if err != nil {
		return err
	}
	errs := []error{c.collect(ctx, lo)}
	for _, f := range c.m.conf.networks() {
		errs = append(errs, c.collect(ctx, f.list))
	}
	return errors.Join(errs...)
}

func (c *collection) collect(ctx context.Context, list *libcni.NetworkConfigList) (err error) {
	ctx, cancel := c.m.bounded(ctx)
	defer cancel()
	ctx, end := c.m.begin(ctx, Step{Operation: "GC", Network: list.Name})
	defer func() { end(err) }()
	return c.m.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: c.keep[list.Name], Listed: c.began})
}

// attachments collects the attachments of valid pods from the notes, the cache and the records. Invalid pods that have
// a note, because of a running set-up or a failed tear-down, keep their attachments.
func (c *collection) attachments() error {
	c.keep, c.kept = map[string][]cni.Attachment{}, map[keptAttachment]bool{}
	ids, err := c.m.notes.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		n, err := c.m.notes.read(id)
		if err != nil {
			continue // gone or damaged: the cache and the records may know it
		}
		for _, p := range n.Parts {
			c.add(p.Network, id, p.IfName)
		}
	}
	cached, err := c.m.cni.GetCachedAttachments("")
	if err != nil {
		return err
	}
	for _, a := range cached {
		if c.valid[a.ContainerID] {
			c.add(a.Network, a.ContainerID, a.IfName)
		}
	}
	var records []*attach.Record
	if records, err = c.m.records.List(""); err != nil {
		return err
	}
	for _, r := range records {
		if c.valid[r.ContainerID] {
			c.add(r.Network, r.ContainerID, r.IfName)
		}
	}
	for id := range c.valid { // pods that none of these know
		c.add(loopbackNetwork, id, "lo")
		for _, f := range c.m.conf.networks() {
			c.add(f.list.Name, id, DefaultIfNamePrefix+"0")
		}
	}
	return nil
}

func (c *collection) add(network, id, ifName string) {
	a := cni.Attachment{ContainerID: id, IfName: ifName}
	if k := (keptAttachment{network, a}); !c.kept[k] {
		c.kept[k], c.keep[network] = true, append(c.keep[network], a)
	}
}
