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
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/ipam"
)

// formatVersion is the version of the network files. A plugin rejects a newer one.
const formatVersion = 1

// Network is the part of a cluster network that plugins on this node need. The agent writes it.
type Network struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Node    string `json:"node"`
	MTU     int    `json:"mtu,omitempty"` // of the container links, in bytes; 0: unknown
	NAT     bool   `json:"nat,omitempty"`

	Subnets []Subnet       `json:"subnets"`
	Routes  []netip.Prefix `json:"routes,omitempty"` // destinations that containers reach through their gateway
}

// Subnet is a subnet with this node's blocks.
type Subnet struct {
	Name    string         `json:"name,omitempty"`
	CIDR    netip.Prefix   `json:"cidr"`
	Assign  string         `json:"assign,omitempty"`
	Exclude []string       `json:"exclude,omitempty"`
	Blocks  []netip.Prefix `json:"blocks,omitempty"`
	Leased  []netip.Prefix `json:"lent,omitempty"` // blocks whose addresses the flannel plugin assigns
}

// Cluster reports whether the subnet's addresses are assigned individually.
func (s Subnet) Cluster() bool { return s.Assign == cluster.AssignCluster }

// Usable reports whether a block of a subnet, or the whole subnet, has any usable address.
func Usable(s cluster.Subnet, block netip.Prefix) bool {
	set, err := Subnet{CIDR: s.CIDR, Exclude: s.Exclude}.Ranges(block)
	return err == nil && set.Size(1) > 0
}

// Ranges returns the usable ranges of a block, or of a whole subnet, without excluded addresses. As in flannel, a block
// is a subnet of its own on the containers' link: its second address is the gateway, and its last IPv4 address is the
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

// Without removes the addresses from first to last from ranges.
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

// Read reads a network's file. The error is os.ErrNotExist if the agent has not written it.
func (d Dir) Read(name string) (*Network, error) { return d.ReadWith(os.ReadFile, name) }

// ReadWith is Read with another function that reads a file.
func (d Dir) ReadWith(readFile func(path string) ([]byte, error), name string) (*Network, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	path := d.networkFile(name)
	raw, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the file of network %s: %w", name, err)
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
		return nil, fmt.Errorf("its version is %d: want %d; the agent and this plugin are from different versions of Fairlead", n.Version, formatVersion)
	}
	for _, s := range n.Subnets {
		if !s.CIDR.IsValid() {
			return nil, errors.New("a subnet has no cidr")
		}
		for _, b := range slices.Concat(s.Blocks, s.Leased) {
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

// Write atomically writes a network's file. It leaves an identical file untouched.
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
	if old, err := plainfile.Read(path); err == nil && bytes.Equal(old, raw) {
		return nil
	}
	if err := os.MkdirAll(d.Root(), 0o755); err != nil {
		return fmt.Errorf("create the directory of the cluster's addresses: %w", err)
	}
	if err := Replace(path, raw, 0o644); err != nil {
		return fmt.Errorf("write the file of network %s: %w", n.Name, err)
	}
	return nil
}

// Remove deletes the file of a network that the cluster no longer has.
func (d Dir) Remove(name string) error {
	if err := os.Remove(d.networkFile(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete the file of network %s: %w", name, err)
	}
	return nil
}

// Networks returns the names of the networks that have a file.
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

// HeldByHostLocal returns the addresses in host-local's default directory, of all CNI networks.
func (d Dir) HeldByHostLocal() (addrs []netip.Addr, err error) {
	networks, err := os.ReadDir(filepath.Join(d.lib, "networks"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the networks of host-local: %w", err)
	}
	for _, n := range networks {
		entries, err := os.ReadDir(filepath.Join(d.lib, "networks", n.Name()))
		if err != nil {
			continue // not a directory, or deleted meanwhile
		}
		for _, e := range entries {
			if a, err := netip.ParseAddr(e.Name()); err == nil {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, nil
}

// Holds returns the addresses of a network that are held on this node. It reads file names only.
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
