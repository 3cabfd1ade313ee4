package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// defaultDataDir is the reference plugin's address directory. libVariable in the environment overrides the root, so
// that tests can run several hosts on one machine.
const (
	defaultDataDir = "/var/lib/cni/networks"
	libVariable    = "FAIRLEAD_LIB"
)

// HostLocal returns the plugin host-local: addresses from ranges, recorded in a directory of this host.
func HostLocal() skel.Plugin {
	return skel.Plugin{
		Name:     "host-local",
		About:    "allocates addresses from ranges and records them in a directory on this host",
		AnyNetns: true,
		Funcs: skel.CNIFuncs{
			Add:    hostLocalAdd,
			Check:  hostLocalCheck,
			Del:    hostLocalDel,
			GC:     hostLocalGC,
			Status: hostLocalStatus,
		},
	}
}

func hostLocalAdd(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	c, err := parseHostLocal(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	store, err := ipam.Open(ctx, c.dataDir, c.network, ipam.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ips, err := allocate(ctx, store, ownerOf(args), c)
	if err != nil {
		return nil, fmt.Errorf("allocate for network %s: %w", c.network, err)
	}
	r := &cni.Result{CNIVersion: c.version, Routes: c.routes, DNS: c.dns}
	for _, ip := range ips {
		r.IPs = append(r.IPs, cni.IP{Address: ip.Address, Gateway: ip.Gateway})
	}
	return r, nil
}

// allocate allocates addresses. An attachment whose namespace was deleted (a restart) gets its addresses again if the
// ranges allow it, except where it requests others.
func allocate(ctx context.Context, store *ipam.Store, o ipam.Owner, c *hostLocal) ([]ipam.IP, error) {
	if !plugin.ReusesAddresses(ctx) {
		return store.Allocate(o, c.sets, c.requested)
	}
	held, err := store.Release(o) // the lock is held until the store is closed
	if err != nil {
		return nil, err
	}
	wanted := slices.Clone(c.requested)
	for _, a := range held {
		if !slices.ContainsFunc(c.requested, func(r netip.Addr) bool { return setOf(c.sets, r) == setOf(c.sets, a) }) {
			wanted = append(wanted, a)
		}
	}
	if ips, err := store.Allocate(o, c.sets, wanted); err == nil {
		return ips, nil
	}
	return store.Allocate(o, c.sets, c.requested)
}

// setOf returns the position of the range set with an address, or -1.
func setOf(sets []ipam.RangeSet, a netip.Addr) int {
	return slices.IndexFunc(sets, func(s ipam.RangeSet) bool { _, found := s.Find(a); return found })
}

func ownerOf(args *skel.CmdArgs) ipam.Owner {
	return ipam.Owner{ContainerID: args.ContainerID, IfName: args.IfName}
}

func hostLocalCheck(ctx context.Context, args *skel.CmdArgs) error {
	store, network, err := openExisting(ctx, args.StdinData)
	if err == nil {
		defer store.Close()
		addrs, lookupErr := store.Lookup(ownerOf(args))
		if lookupErr != nil || len(addrs) > 0 {
			return lookupErr
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("network %s has no address for container %s, but ADD allocated one: run DEL and ADD again", network, ownerOf(args))
}

func hostLocalDel(ctx context.Context, args *skel.CmdArgs) error {
	store, network, err := openExisting(ctx, args.StdinData)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Release(ownerOf(args)); err != nil {
		return fmt.Errorf("release the addresses of %s in network %s: %w", ownerOf(args), network, err)
	}
	return nil
}

func hostLocalGC(ctx context.Context, args *skel.CmdArgs) error {
	started := gcStarted(ctx)
	var c cni.PluginConf
	if err := cni.Decode(args.StdinData, &c); err != nil {
		return err
	}
	store, network, err := openExisting(ctx, args.StdinData)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer store.Close()
	valid := make([]ipam.Owner, len(c.ValidAttachments))
	for i, a := range c.ValidAttachments {
		valid[i] = ipam.Owner{ContainerID: a.ContainerID, IfName: a.IfName}
	}
	if _, err := store.GC(valid, started); err != nil {
		return fmt.Errorf("release unused addresses of network %s: %w", network, err)
	}
	return nil
}

// gcStarted returns when the collection started, as ipam.Uptime counts.
func gcStarted(ctx context.Context) time.Duration {
	_, started := plugin.GCStart(ctx)
	return started
}

func hostLocalStatus(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parseHostLocal(args.StdinData, "")
	if err != nil {
		return err
	}
	store, err := ipam.Open(ctx, c.dataDir, c.network, ipam.Options{})
	if err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "cannot use the address directory: %w", err)
	}
	defer store.Close()
	if err := store.Usable(c.sets); err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "network %s has no address to allocate: %w", c.network, err)
	}
	return nil
}

// openExisting opens a network's directory.
func openExisting(ctx context.Context, data []byte) (*ipam.Store, string, error) {
	name, keys, err := identity[struct {
		DataDir string `json:"dataDir"`
	}](data)
	if err != nil {
		return nil, "", err
	}
	store, err := ipam.Open(ctx, dataDirOr(keys.DataDir), name, ipam.Options{Existing: true})
	return store, name, err
}

func dataDirOr(dir string) string {
	if dir != "" {
		return dir
	}
	if root := os.Getenv(libVariable); root != "" {
		return filepath.Join(root, "networks")
	}
	return defaultDataDir
}
