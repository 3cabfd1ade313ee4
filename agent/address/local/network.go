package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/ipam"
)

// formatVersion is that of a network's file. A plugin refuses one that is newer.
const formatVersion = 1

// Network is what a plugin has to know of a network of the cluster on this node. The
// agent writes it.
type Network struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Node    string `json:"node"`
	MTU     int    `json:"mtu,omitempty"` // bytes of the containers' links; 0: unknown
	NAT     bool   `json:"nat,omitempty"`

	Subnets []Subnet       `json:"subnets"`
	Routes  []netip.Prefix `json:"routes,omitempty"` // what containers reach by their gateway
}

// Subnet is a subnet with this node's blocks.
type Subnet struct {
	Name    string         `json:"name,omitempty"`
	CIDR    netip.Prefix   `json:"cidr"`
	Assign  string         `json:"assign,omitempty"`
	Exclude []string       `json:"exclude,omitempty"`
	Blocks  []netip.Prefix `json:"blocks,omitempty"`
	Lent    []netip.Prefix `json:"lent,omitempty"` // blocks whose addresses the plugin flannel gives
}

// Cluster tells whether its addresses are given one by one.
func (s Subnet) Cluster() bool { return s.Assign == cluster.AssignCluster }

// Ranges are those of a block, or of a whole subnet, out of which addresses are
// given: without what is excluded. On the link of its containers a block is a subnet
// of its own, as flannel's: its second address is its gateway, and IPv4's last is its
// broadcast address.
func (s Subnet) Ranges(block netip.Prefix) (ipam.RangeSet, error) {
	whole, err := ipam.Range{Subnet: block}.Complete()
	if err != nil {
		return nil, fmt.Errorf("block %s: %w", block, err)
	}
	set := ipam.RangeSet{whole}
	for _, x := range s.Exclude {
		first, last, err := cluster.ParseRange(x)
		if err != nil {
			return nil, fmt.Errorf("subnet %s: exclude %q: %w", s.CIDR, x, err)
		}
		set = Without(set, first, last)
	}
	return set, nil
}

// Without cuts addresses out of ranges.
func Without(set ipam.RangeSet, first, last netip.Addr) (out ipam.RangeSet) {
	for _, r := range set {
		if r.Start.BitLen() != first.BitLen() || last.Less(r.Start) || r.End.Less(first) {
			out = append(out, r)
			continue
		}
		if r.Start.Less(first) {
			before := r
			before.End = first.Prev()
			out = append(out, before)
		}
		if last.Less(r.End) {
			after := r
			after.Start = last.Next()
			out = append(out, after)
		}
	}
	return out
}

// Read reads a network's file; os.ErrNotExist: the agent has not written it.
func (d Dir) Read(name string) (*Network, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	path := d.networkFile(name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read this node's part of network %s: %w", name, err)
	}
	n, err := parseNetwork(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

func parseNetwork(raw []byte) (*Network, error) {
	n := &Network{}
	if err := json.Unmarshal(raw, n); err != nil {
		return nil, err
	}
	if n.Version < 1 || n.Version > formatVersion {
		return nil, fmt.Errorf("its version is %d: want %d; the agent is of another Fairlead than this plugin", n.Version, formatVersion)
	}
	for _, s := range n.Subnets {
		if !s.CIDR.IsValid() {
			return nil, errors.New("a subnet has no cidr")
		}
		for _, b := range slices.Concat(s.Blocks, s.Lent) {
			if !b.IsValid() || !s.CIDR.Contains(b.Addr()) || b.Bits() < s.CIDR.Bits() {
				return nil, fmt.Errorf("block %s is not in subnet %s", b, s.CIDR)
			}
			if _, err := s.Ranges(b); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// Write puts a network's file in place, whole or not at all; one that says the same
// is left alone.
func (d Dir) Write(n *Network) error {
	n.Version = formatVersion
	if err := checkName(n.Name); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	path := d.networkFile(n.Name)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, raw) {
		return nil
	}
	if err := os.MkdirAll(d.Root(), 0o755); err != nil {
		return fmt.Errorf("make the directory of the cluster's addresses: %w", err)
	}
	if err := Replace(path, raw, 0o644); err != nil {
		return fmt.Errorf("write this node's part of network %s: %w", n.Name, err)
	}
	return nil
}

// Remove forgets a network that the cluster has no more.
func (d Dir) Remove(name string) error {
	if err := os.Remove(d.networkFile(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget network %s: %w", name, err)
	}
	return nil
}

// Networks are the names of those whose files are here.
func (d Dir) Networks() (names []string, err error) {
	entries, err := os.ReadDir(d.Root())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list this node's networks: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && !e.IsDir() && checkName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// HeldByHostLocal are the addresses that the plugin host-local gave here where it
// keeps them by itself, of every CNI network.
func (d Dir) HeldByHostLocal() (addrs []netip.Addr, err error) {
	networks, err := os.ReadDir(filepath.Join(d.lib, "networks"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the networks of host-local: %w", err)
	}
	for _, n := range networks {
		entries, err := os.ReadDir(filepath.Join(d.lib, "networks", n.Name()))
		if err != nil {
			continue // no directory, or gone by now
		}
		for _, e := range entries {
			if a, err := netip.ParseAddr(e.Name()); err == nil {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, nil
}

// Holds are the addresses of a network that are held here, by name alone.
func (d Dir) Holds(network string) (addrs []netip.Addr, err error) {
	f, err := os.Open(filepath.Join(d.Addresses(), network))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the addresses of network %s: %w", network, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of network %s: %w", network, err)
	}
	for _, n := range names {
		if a, err := netip.ParseAddr(n); err == nil {
			addrs = append(addrs, a)
		}
	}
	return addrs, nil
}
