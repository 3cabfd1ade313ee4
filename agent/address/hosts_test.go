package address

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestHostsInBlocks checks that no node claims a block that contains a node's own address, except in isolated networks,
// whose blocks are in their own namespaces.
func TestHostsInBlocks(t *testing.T) {
	t.Parallel()
	for isolated, want := range map[string]int{"": 14, `"isolated": true, `: 16} {
		m := NewManager(Options{Node: "a"})
		m.Reset(source.DecodeAll([]store.Entry{
			{Key: "networks/n", Value: []byte(`{` + isolated + `"subnets": [{"cidr": "10.0.0.0/24", "block": 28}]}`), Revision: 1},
			{Key: "nodes/a", Value: []byte(`{"addresses": ["10.0.0.20/24"]}`), Revision: 2},
			{Key: "nodes/b", Value: []byte(`{"addresses": ["10.0.0.250/24", "2001:db8::1/64"]}`), Revision: 3},
		}), 3)
		taken := map[netip.Prefix]bool{}
		for {
			b, err := m.freeBlock("n", m.state.snap.Networks["n"].Subnets[0])
			if err != nil {
				break
			}
			if b.Contains(netip.MustParseAddr("10.0.0.20")) && isolated == "" {
				t.Fatalf("%s, in which node a is, is free", b)
			}
			taken[b] = true
			m.state.set(source.Decode(store.Entry{Key: cluster.BlockKey("n", b), Value: []byte(`{"node": "a"}`), Revision: int64(4 + len(taken))}))
		}
		if len(taken) != want {
			t.Errorf("with %q there are %d free blocks, want %d", isolated, len(taken), want)
		}
	}
}

// TestOverlappingBlock checks that no node claims a block that overlaps one of another length, which a node got before
// an administrator changed the length.
func TestOverlappingBlock(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]int{24: 2, 28: 59} {
		m := NewManager(Options{Node: "a"})
		m.Reset(source.DecodeAll([]store.Entry{
			{Key: "networks/n", Value: fmt.Appendf(nil, `{"subnets": [{"cidr": "10.0.0.0/22", "block": %d}]}`, length), Revision: 1},
			{Key: "blocks/n/10.0.1.64-26", Value: []byte(`{"node": "b", "subnet": "10.0.0.0/22"}`), Revision: 2},
			{Key: "blocks/n/10.0.3.64-28", Value: []byte(`{"node": "b", "subnet": "10.0.2.0/23"}`), Revision: 3}, // the subnet was smaller
			{Key: "blocks/n/10.0.0.0-8", Value: []byte(`{"node": "b", "subnet": "10.0.0.0/8"}`), Revision: 4},    // of no subnet
			{Key: "blocks/x/10.0.2.0-26", Value: []byte(`{"node": "b", "subnet": "10.0.0.0/22"}`), Revision: 5},  // of another network
		}), 5)
		free := 0
		for s := m.state.snap.Networks["n"].Subnets[0]; ; free++ {
			b, err := m.freeBlock("n", s)
			if err != nil {
				break
			}
			if b.Overlaps(netip.MustParsePrefix("10.0.1.64/26")) || b.Overlaps(netip.MustParsePrefix("10.0.3.64/28")) {
				t.Fatalf("%s, which overlaps the block of node b, is free", b)
			}
			m.state.set(source.Decode(store.Entry{Key: cluster.BlockKey("n", b), Value: []byte(`{"node": "a"}`), Revision: int64(6 + free)}))
		}
		if free != want {
			t.Errorf("%d blocks of length %d are free, want %d", free, length, want)
		}
	}
}

// TestFreeBlockInHugeSubnet checks that every node finds a block in a large subnet most of which is excluded, at once.
func TestFreeBlockInHugeSubnet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cidr    string
		exclude []string
	}{
		{"fd00::/64", []string{"fd00:0:0:0:8000::/65"}},
		{"fd00::/64", []string{"fd00::-fd00::ffff:ffff:ffff:ff00"}},
		{"fd00::/64", []string{"fd00:0:0:0:8000::/65", "fd00:0:0:0:4000::/66", "fd00::/67"}},
		{"fd00::/40", []string{"fd00::-fd00:0:0:ffff:ffff:ffff:ffff:ffff", "fd00:0:2::-fd00:ff:ffff:ffff:ffff:ffff:ffff:ffff"}},
		{"10.0.0.0/8", []string{"10.0.0.0-10.255.254.255"}},
		{"10.0.0.0/24", nil},
	} {
		s := cluster.Subnet{CIDR: netip.MustParsePrefix(c.cidr), Exclude: c.exclude}
		began := time.Now()
		for i := range 50 {
			m := NewManager(Options{Node: fmt.Sprint("node-", i)})
			m.state.snap.Networks["default"] = &cluster.Network{Name: "default", Subnets: []cluster.Subnet{s}}
			if b, err := m.freeBlock("default", s); err != nil || !s.CIDR.Contains(b.Addr()) || !local.Usable(s, b) {
				t.Errorf("%s without %v, node %d: %s, %v", c.cidr, c.exclude, i, b, err)
			}
		}
		if took := time.Since(began); took > kerneltest.Slow(time.Second) {
			t.Errorf("%s without %v: 50 blocks took %v", c.cidr, c.exclude, took)
		}
	}
	s := cluster.Subnet{CIDR: netip.MustParsePrefix("fd00::/64"), Exclude: []string{"fd00::/64"}}
	m := NewManager(Options{Node: "a"})
	m.state.snap.Networks["default"] = &cluster.Network{Name: "default", Subnets: []cluster.Subnet{s}}
	if b, err := m.freeBlock("default", s); !errors.Is(err, errNoBlock) {
		t.Errorf("in a subnet without addresses: %s, %v", b, err)
	}
}
