// Package gc removes what attachments left behind on a host whose runtime never calls GC.
package gc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
)

// minAge is the age below which an address or a file without a known owner is left alone. Other plugins report an ADD
// only at its end, which may take minutes.
const minAge = 10 * time.Minute

// Options say where the collector looks.
type Options struct {
	Runtime  *libcni.CNIConfig // runs plugins and reads the cache of results
	StateDir string            // directory of runtime state; "" is the default
	ConfDir  string            // directory of network configurations
	LibDir   string            // directory of addresses
	DryRun   bool              // report what would be removed, and change nothing

	// Progress is called before each attachment is removed. The function that it returns is called afterwards. It may
	// be nil.
	Progress func(done, of int) (end func())
}

// Report lists the removed objects. With Options.DryRun it lists the objects that a collection would remove.
type Report struct {
	Attachments []Attachment `json:"attachments"`
	Leftovers   []string     `json:"leftovers"` // owner tags without an attachment
	Bridges     []string     `json:"bridges"`   // names of missing bridges that had rules of the plugin firewall
	Addresses   []Address    `json:"addresses"`
	Results     []Result     `json:"results"`
	Skipped     []string     `json:"skipped"`
	Errors      []string     `json:"errors"`
	Kept        int          `json:"kept"`
	DryRun      bool         `json:"dryRun"`
}

// Attachment is an attachment that was removed.
type Attachment struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`
	Reason    string `json:"reason"`

	owner     kernel.Owner
	hasRecord bool
	alive     string // path of the namespace, if it still exists
	reserved  bool   // the collector has the reservation, so there is no record
	forced    bool   // remove it even if it is in use: its pod is being torn down
	cache     *libcni.NetworkAttachment
}

// Address is an address that was released.
type Address struct {
	Network   string `json:"network"`
	Address   string `json:"address"`
	Container string `json:"container"`
	IfName    string `json:"ifname"`
}

// Result is an unreadable file that was removed: a result in the runtimes' cache, because a runtime was killed while it
// wrote the file, or a damaged record.
type Result struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// collector knows attachments from the records, the cache of results, the owner tags in the kernel and the held
// addresses.
type collector struct {
	Options
	dir     *attach.Dir
	cached  []*libcni.NetworkAttachment
	corrupt []*libcni.CacheError // unreadable files of the cache
	used    map[string]bool      // owner tags of links whose peer is in a namespace in use
	out     Report
}

func newCollector(o Options) *collector {
	return &collector{Options: o, dir: attach.Open(o.StateDir), out: Report{
		Attachments: []Attachment{}, Leftovers: []string{}, Bridges: []string{}, Addresses: []Address{}, Results: []Result{}, Skipped: []string{}, Errors: []string{}, DryRun: o.DryRun,
	}}
}

// Collect removes all objects of attachments whose namespace is gone, in all networks. Errors that concern one object
// are in the report.
func Collect(ctx context.Context, o Options) (*Report, error) {
	c := newCollector(o)
	c.Runtime.Warn = c.cacheWarning
	gone, err := c.gone()
	if err != nil {
		return nil, err
	}
	for i, g := range gone {
		end := func() {}
		if o.Progress != nil {
			end = o.Progress(i, len(gone))
		}
		c.remove(ctx, g)
		end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	c.removeTagged()
	c.releaseAddresses(ctx)
	c.removeResults()
	c.removeDamaged()
	if !o.DryRun {
		c.fail(c.dir.DropClaims(ctx, func(tag string) bool { return !c.inUse(tag) }))
		c.fail(c.dir.ClearLocks())
	}
	return &c.out, nil
}

// RemoveAttachment removes everything of one attachment that has no configuration any more. Netns is the path of its
// namespace, or "".
func RemoveAttachment(ctx context.Context, o Options, owner kernel.Owner, netns string) error {
	return newCollector(o).removeByRecord(ctx, Attachment{
		Network: owner.Network, Container: owner.ContainerID, IfName: owner.IfName, owner: owner, alive: netns, forced: true,
	})
}

func (c *collector) fail(err error) {
	if err != nil {
		c.out.Errors = append(c.out.Errors, err.Error())
	}
}

// gone returns the attachments to remove. If an attachment has a record, the record decides: it tells the namespace
// from another one at the same path.
func (c *collector) gone() ([]Attachment, error) {
	records, err := c.dir.List("")
	if err != nil {
		return nil, err
	}
	if c.cached, err = c.Runtime.GetCachedAttachments(""); err != nil {
		c.fail(err)
	}
	found := map[kernel.Owner]*Attachment{}
	known := map[kernel.Owner]bool{}
	var all attach.Namespaces
	for _, r := range records {
		known[r.Owner()] = true
		s := r.State()
		if attach.Exists(s) {
			c.out.Kept++
			continue
		}
		if s == attach.StateGone {
			path, err := all.Elsewhere(r)
			if err != nil {
				return nil, err
			}
			if path != "" {
				c.out.Kept++
				c.out.Skipped = append(c.out.Skipped, fmt.Sprintf("container %s, network %s, interface %s: %s is gone, but the namespace exists: %s",
					r.ContainerID, r.Network, r.IfName, r.Netns, path))
				continue
			}
		}
		g := &Attachment{Network: r.Network, Container: r.ContainerID, IfName: r.IfName, Netns: r.Netns, Reason: s, owner: r.Owner(), hasRecord: true}
		if r.HasNetns() {
			g.alive = r.Netns
		}
		found[g.owner] = g
	}
	for _, a := range c.cached {
		o := kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName}
		if g := found[o]; g != nil {
			g.cache = a
		}
		if known[o] || mayLive(a) {
			continue
		}
		found[o] = &Attachment{Network: a.Network, Container: a.ContainerID, IfName: a.IfName, Netns: a.NetNS, Reason: attach.StateGone, owner: o, cache: a}
	}
	for _, o := range c.dir.Interrupted() {
		if !known[o] && found[o] == nil && !slices.ContainsFunc(c.cached, cachedAs(o)) {
			found[o] = &Attachment{Network: o.Network, Container: o.ContainerID, IfName: o.IfName, Reason: attach.StateInterrupted, owner: o}
		}
	}
	var out []Attachment
	for _, g := range found {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Attachment) int { return strings.Compare(a.owner.Tag(), b.owner.Tag()) })
	return out, nil
}

func cachedAs(o kernel.Owner) func(*libcni.NetworkAttachment) bool {
	return func(a *libcni.NetworkAttachment) bool {
		return a.Network == o.Network && a.ContainerID == o.ContainerID && a.IfName == o.IfName
	}
}

// remove removes an attachment: with DEL if there is a configuration of the network, otherwise by the record and the
// owner tags.
func (c *collector) remove(ctx context.Context, g Attachment) {
	if !c.DryRun {
		if err := c.removeNow(ctx, g); err != nil {
			if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
				c.out.Skipped = append(c.out.Skipped, g.describe()+": "+err.Error())
				return
			}
			c.fail(fmt.Errorf("%s: %w", g.describe(), err))
			return
		}
	}
	c.out.Attachments = append(c.out.Attachments, g)
}

func (g Attachment) describe() string {
	return "container " + g.Container + ", network " + g.Network + ", interface " + g.IfName
}

func (c *collector) removeNow(ctx context.Context, g Attachment) error {
	collecting := plugin.Collecting(ctx)
	_, err := c.dir.Read(g.owner)
	if !g.hasRecord || errors.Is(err, os.ErrNotExist) {
		g.reserved = true // only the reservation tells an ADD that is running from an attachment that is gone
		reservation, err := c.dir.Reserve(g.owner)
		if errors.Is(err, os.ErrExist) {
			return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
		}
		if err != nil {
			return err
		}
		defer reservation.Free()
		collecting = plugin.CollectingReserved(ctx)
	}
	list, rt := c.configuration(g)
	if list == nil {
		err := c.removeByRecord(ctx, g)
		if g.cache != nil {
			err = errors.Join(err, c.Runtime.Forget(g.cache))
		}
		return err
	}
	err = c.Runtime.DelNetworkList(collecting, list, rt)
	if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
		return err
	}
	if err == nil {
		if _, err := c.dir.Read(g.owner); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return c.removeByRecord(ctx, g) // other plugins ran, and did not remove what Fairlead created
	}
	// A plugin that is not installed any more must not prevent the removal of Fairlead's objects. The cached result, which
	// that plugin needs, stays for the next run.
	if err2 := c.removeByRecord(ctx, g); err2 != nil {
		return errors.Join(err, err2)
	}
	return fmt.Errorf("Fairlead's objects are removed, but DEL failed: %w", err)
}

// configuration returns the configuration that the attachment was added with, or else the network's current one, or
// nil. Another library caches a list without the plugins that came from other files. If the list is still the same, those
// plugins are the current ones.
func (c *collector) configuration(g Attachment) (*libcni.NetworkConfigList, *libcni.RuntimeConf) {
	rt := &libcni.RuntimeConf{ContainerID: g.Container, NetNS: g.alive, IfName: g.IfName}
	if g.cache != nil {
		rt.Args, rt.CapabilityArgs = g.cache.CniArgs, g.cache.CapabilityArgs
	}
	current, err := libcni.LoadNetworkConf(c.ConfDir, g.Network)
	if err != nil {
		current = nil
	}
	if g.cache == nil {
		return current, rt
	}
	added, err := g.cache.List()
	if err != nil || current != nil && bytes.Equal(added.Bytes, current.Bytes) {
		return current, rt
	}
	return added, rt
}
