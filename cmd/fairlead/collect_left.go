package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// byRecord removes what is Fairlead's of an attachment without any configuration.
func (c *collector) byRecord(ctx context.Context, g collectedAttachment) error {
	rec, err := c.dir.Take(ctx, g.owner)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	defer rec.Unlock()
	if rec != nil && !g.forced {
		if s := state(rec); s == stateOK || s == stateAdding {
			return cni.Errorf(cni.CodeTryAgainLater, "it was added again meanwhile")
		}
	}
	errs := []error{c.unmake(g, rec)}
	for _, s := range c.stores() {
		if s.cluster || s.network == g.Network {
			_, err := s.free(ctx, func(h ipam.Holding) bool {
				return h.Owner.ContainerID == g.Container && (h.Owner.IfName == g.IfName || h.Owner.IfName == "")
			})
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.dir.Remove(g.owner))
	if g.cache != nil {
		errs = append(errs, c.cni.Forget(g.cache))
	}
	return errors.Join(errs...)
}

func (c *collector) unmake(g collectedAttachment, rec *attach.Record) error {
	var ns *netns.Handle
	if g.alive != "" && rec != nil && rec.Living() {
		var err error
		if ns, err = netns.Open(g.alive); err != nil {
			return err
		}
		defer ns.Close()
	}
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	var errs []error
	if rec != nil {
		list, err := objectsOf(rec)
		errs = append(errs, err, e.Remove(list))
		for _, p := range rec.Parts {
			errs = append(errs, c.dir.Unclaim(g.owner, p.Ports))
		}
	}
	return errors.Join(append(errs, e.RemoveTaggedLinks(g.owner.Owns), e.RemoveTagged(g.owner.Owns))...)
}

// marks removes what carries the mark of an attachment that has neither a record
// nor a place in the cache, nor a link into a namespace that somebody uses. An ADD
// at work has its record before its first mark.
func (c *collector) marks() {
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		c.fail(err)
		return
	}
	defer e.Close()
	if c.used, err = inspect.TagsInUse(e); err != nil {
		c.fail(err)
		return
	}
	dead := func(mark string) bool {
		if c.standing(mark) {
			return false
		}
		if !slices.Contains(c.out.Leftovers, mark) {
			c.out.Leftovers = append(c.out.Leftovers, mark)
		}
		return !c.dry
	}
	c.fail(e.RemoveTaggedLinks(dead))
	c.fail(e.RemoveTagged(dead))
}

func (c *collector) standing(mark string) bool {
	if c.used[mark] || !kernel.IsOwnerTag(mark) || c.dir.ByMark(mark) != nil {
		return true
	}
	for _, g := range c.out.Attachments {
		if c.dry && g.owner.Owns(mark) {
			return true // told already
		}
	}
	for _, a := range c.cached {
		o := kernel.Owner{Network: a.Network, ContainerID: a.ContainerID, IfName: a.IfName}
		if o.Owns(mark) && (a.NetNS == "" || isNetns(a.NetNS)) {
			return true
		}
	}
	o, ok := kernel.ParseOwnerTag(mark)
	return ok && c.dir.Reserved(o)
}

// strangerAge is how long an address is left alone whose holder nobody knows: an
// ADD of other plugins tells of itself only at its end, and may wait for minutes.
const strangerAge = 10 * time.Minute

// addresses frees those that no attachment holds.
func (c *collector) addresses(ctx context.Context) {
	var visible map[netip.Addr]bool
	for _, s := range c.stores() {
		held, err := ipam.Held(s.dir, s.network)
		c.fail(err)
		if !slices.ContainsFunc(held, func(h ipam.Holding) bool { return c.stranger(s, h) }) {
			continue
		}
		if visible == nil {
			if visible, err = everyAddress(); err != nil {
				c.fail(err)
				return // who cannot see must not free
			}
		}
		dead := func(h ipam.Holding) bool { return c.stranger(s, h) && !visible[h.Addr] }
		var freed []ipam.Holding
		if c.dry {
			freed = slices.DeleteFunc(held, func(h ipam.Holding) bool { return !dead(h) })
		} else {
			freed, err = s.free(ctx, dead)
			c.fail(err)
		}
		for _, h := range freed {
			c.out.Addresses = append(c.out.Addresses, collectedAddress{s.network, h.Addr.String(), h.Owner.ContainerID, h.Owner.IfName})
		}
	}
}

// stranger tells whether an address is held by nobody who is known, and for long.
func (c *collector) stranger(s addressStore, h ipam.Holding) bool {
	if time.Since(h.Since) < strangerAge {
		return false
	}
	network := s.network
	if s.cluster {
		network = "" // any network of CNI may have addresses of the cluster's
	}
	for _, a := range c.cached {
		if (network == "" || a.Network == network) && a.ContainerID == h.Owner.ContainerID && (h.Owner.IfName == "" || a.IfName == h.Owner.IfName) && (a.NetNS == "" || isNetns(a.NetNS)) {
			return false
		}
	}
	o := kernel.Owner{Network: network, ContainerID: h.Owner.ContainerID, IfName: h.Owner.IfName}
	if h.Owner.IfName != "" && !s.cluster {
		_, err := c.dir.Read(o)
		return errors.Is(err, os.ErrNotExist) && !c.dir.Reserved(o)
	}
	records, err := c.dir.List(network)
	return err == nil && !slices.ContainsFunc(records, func(r *attach.Record) bool { return r.ContainerID == o.ContainerID })
}

// everyAddress is every address of every namespace that can be seen.
func everyAddress() (map[netip.Addr]bool, error) {
	all, err := netns.All()
	out := map[netip.Addr]bool{}
	for _, ns := range all {
		addrs, err2 := ns.Addrs()
		err = errors.Join(err, err2)
		for _, a := range addrs {
			out[a] = true
		}
		ns.Close()
	}
	return out, err
}

// addressStore is a network's directory of addresses.
type addressStore struct {
	dir, network string
	cluster      bool // network is one of the cluster's, not of CNI's
}

func (s addressStore) free(ctx context.Context, dead func(ipam.Holding) bool) ([]ipam.Holding, error) {
	store, err := ipam.Open(ctx, s.dir, s.network, ipam.Options{Existing: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return store.FreeIf(dead)
}

// stores are the directories of addresses that are known: those in the usual
// place, and those that a configuration, of now or of an attachment, names.
func (c *collector) stores() (out []addressStore) {
	usual := filepath.Join(c.libDir(), "networks")
	names, err := ipam.Networks(usual)
	c.fail(err)
	for _, n := range names {
		out = append(out, addressStore{dir: usual, network: n})
	}
	cluster := local.Open(c.libDir(), "").Addresses()
	names, err = ipam.Networks(cluster)
	c.fail(err)
	for _, n := range names {
		out = append(out, addressStore{cluster, n, true})
	}
	for _, name := range networkNames(c.confDir()) {
		if list, err := libcni.LoadNetworkConf(c.confDir(), name); err == nil {
			out = append(out, storesOf(name, list.Bytes)...)
		}
	}
	for _, a := range c.cached {
		out = append(out, storesOf(a.Network, a.Config)...)
	}
	slices.SortFunc(out, func(a, b addressStore) int { return strings.Compare(a.dir+"/"+a.network, b.dir+"/"+b.network) })
	return slices.Compact(out)
}

func (a *app) libDir() string {
	if dir := a.getenv("FAIRLEAD_LIB"); dir != "" {
		return dir
	}
	return libcni.CacheDir
}

// storesOf finds every ipam.dataDir of a configuration, however deep.
func storesOf(network string, conf []byte) (out []addressStore) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if in, ok := v["ipam"].(map[string]any); ok {
				if dir, ok := in["dataDir"].(string); ok && dir != "" {
					out = append(out, addressStore{dir: filepath.Clean(dir), network: network})
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	var v any
	if json.Unmarshal(conf, &v) == nil {
		walk(v)
	}
	return out
}
