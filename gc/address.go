package gc

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// releaseAddresses releases the addresses whose owner does not exist.
func (c *collector) releaseAddresses(ctx context.Context) {
	var visible map[netip.Addr]bool
	for _, s := range c.addressDirs() {
		held, err := ipam.Allocations(s.dir, s.network)
		c.fail(err)
		if !slices.ContainsFunc(held, func(h ipam.Allocation) bool { return c.ownerGone(s, h) }) {
			continue
		}
		if visible == nil {
			if visible, err = allAddresses(); err != nil {
				c.fail(err)
				return // without them, an address in use could be released
			}
		}
		release := func(h ipam.Allocation) bool { return c.ownerGone(s, h) && !visible[h.Addr] }
		var freed []ipam.Allocation
		if c.DryRun {
			freed = slices.DeleteFunc(held, func(h ipam.Allocation) bool { return !release(h) })
		} else {
			freed, err = s.free(ctx, release)
			c.fail(err)
		}
		for _, h := range freed {
			c.out.Addresses = append(c.out.Addresses, Address{s.network, h.Addr.String(), h.Owner.ContainerID, h.Owner.IfName})
		}
	}
}

// ownerGone reports whether nothing knows the owner of an address, and the address is older than minAge.
func (c *collector) ownerGone(s addressDir, h ipam.Allocation) bool {
	if time.Since(h.Since).Abs() < minAge { // further in the future: the clock was set back since
		return false
	}
	network := s.network
	if s.cluster {
		network = "" // several CNI networks may use one network of the cluster
	}
	for _, a := range c.cached {
		if (network == "" || a.Network == network) && a.ContainerID == h.Owner.ContainerID && (h.Owner.IfName == "" || a.IfName == h.Owner.IfName) && mayLive(a) {
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

// allAddresses returns the addresses in all network namespaces that this process can see.
func allAddresses() (map[netip.Addr]bool, error) {
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

// addressDir is the directory with the addresses of a network.
type addressDir struct {
	dir, network string
	cluster      bool // network is one of the cluster's, not a CNI network
}

func (s addressDir) free(ctx context.Context, release func(ipam.Allocation) bool) ([]ipam.Allocation, error) {
	store, err := ipam.Open(ctx, s.dir, s.network, ipam.Options{Existing: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	return store.FreeIf(release)
}

// addressDirs returns all known directories of addresses.
func (c *collector) addressDirs() (out []addressDir) {
	cluster := local.Open(c.LibDir, "").Addresses()
	names, err := ipam.Networks(cluster)
	c.fail(err)
	for _, n := range names {
		out = append(out, addressDir{cluster, n, true})
	}
	dirs, err := HostLocalDirs(c.LibDir, c.ConfDir, c.cached)
	c.fail(err)
	for _, d := range dirs {
		out = append(out, addressDir{dir: d.Path, network: d.Network})
	}
	slices.SortFunc(out, func(a, b addressDir) int { return strings.Compare(a.dir+"/"+a.network, b.dir+"/"+b.network) })
	return slices.Compact(out)
}

// HostLocalDir is a directory with the addresses that host-local assigned in a network.
type HostLocalDir struct{ Path, Network string }

// HostLocalDirs returns the directories with addresses of host-local: those in the usual place, and those that a
// current configuration, or the configuration of a cached attachment, names.
func HostLocalDirs(libDir, confDir string, cached []*libcni.NetworkAttachment) (out []HostLocalDir, err error) {
	usual := filepath.Join(libDir, "networks")
	names, err := ipam.Networks(usual)
	for _, n := range names {
		out = append(out, HostLocalDir{usual, n})
	}
	for _, list := range netconf.Lists(confDir) {
		out = append(out, dataDirs(list.Name, list.Bytes)...)
	}
	for _, a := range cached {
		out = append(out, dataDirs(a.Network, a.Config)...)
	}
	slices.SortFunc(out, func(a, b HostLocalDir) int { return strings.Compare(a.Path+"/"+a.Network, b.Path+"/"+b.Network) })
	return slices.Compact(out), err
}

// dataDirs returns every ipam.dataDir in a configuration, at any depth.
func dataDirs(network string, conf []byte) (out []HostLocalDir) {
	for _, dir := range netconf.IPAMTexts(conf, "dataDir") {
		out = append(out, HostLocalDir{filepath.Clean(dir), network})
	}
	return out
}
