package address

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const flannelNet = `{"subnets": [{"cidr": "10.244.0.0/16", "block": 24, "exclude": ["10.244.0.0/24"]}], "nat": true}`

// lending configures a node to write flannel's subnet file.
func lending(file string) func(*Options) {
	return func(o *Options) {
		o.SubnetFile = file
		o.MTU = func(string) int { return 1450 }
	}
}

func part(t *testing.T, m *Manager) (s local.Subnet) {
	t.Helper()
	if n, err := m.Dir.Read("default"); err == nil {
		s = n.Subnets[0]
	}
	return s
}

// TestFlannelKeepsItsSubnet checks that a former flannel node keeps its subnet for the flannel plugin and the file as
// it is. It claims another block only when fairlead-ipam asks for one.
func TestFlannelKeepsItsSubnet(t *testing.T) {
	t.Parallel()
	b := newBed(t, flannelNet)
	file := filepath.Join(t.TempDir(), "flannel", "subnet.env")
	must(t, os.Mkdir(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.77.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"), 0o644))
	m, _ := b.node("a", lending(file))
	kerneltest.Until(t, func() bool { return len(part(t, m).Leased) == 1 })
	had := netip.MustParsePrefix("10.244.77.0/24")
	if s := part(t, m); s.Leased[0] != had || len(s.Blocks) != 0 {
		t.Errorf("the node has %v and lends %v, want to lend %s alone", s.Blocks, s.Leased, had)
	}
	want := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.77.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	kerneltest.Until(t, func() bool { raw, _ := os.ReadFile(file); return string(raw) == want })
	must(t, m.Need(storetest.Context(t), "default", netip.MustParsePrefix("10.244.0.0/16")))
	if s := part(t, m); len(s.Blocks) != 1 || len(s.Leased) != 1 || s.Leased[0] != had || s.Blocks[0] == had {
		t.Errorf("with another block the node has %v and lends %v", s.Blocks, s.Leased)
	}
	if raw, _ := os.ReadFile(file); string(raw) != want {
		t.Errorf("the file is now\n%s", raw)
	}
}

// TestSubnetFileOfOtherNode checks that a node does not claim a subnet in the file that belongs to another node or
// network.
func TestSubnetFileOfOtherNode(t *testing.T) {
	t.Parallel()
	for _, had := range []string{"10.244.77.1/24", "10.9.0.1/24", "10.244.77.1/25", "10.244.0.1/24", "nonsense"} {
		b := newBed(t, flannelNet)
		file := filepath.Join(t.TempDir(), "subnet.env")
		must(t, os.WriteFile(file, []byte("FLANNEL_SUBNET="+had+"\n"), 0o644))
		storetest.Put(t, b.open(t), cluster.BlockKey("default", netip.MustParsePrefix("10.244.77.0/24")), `{"node": "b", "subnet": "10.244.0.0/16"}`)
		storetest.Put(t, b.open(t), cluster.NodeKey("b"), "{}")
		m, _ := b.node("a", lending(file))
		kerneltest.Until(t, func() bool { return len(part(t, m).Leased) == 1 })
		p := part(t, m).Leased[0]
		kerneltest.Until(t, func() bool {
			raw, _ := os.ReadFile(file)
			return string(raw) == fmt.Sprintf("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=%s/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n", p.Addr().Next())
		})
		if p.Addr() == netip.MustParseAddr("10.244.77.0") || p.Addr() == netip.MustParseAddr("10.244.0.0") {
			t.Errorf("with %s in the file the node has %s", had, p)
		}
	}
}

// TestReleaseFlannelBlock checks that a block is not released while host-local holds an address in it.
func TestReleaseFlannelBlock(t *testing.T) {
	t.Parallel()
	b := newBed(t, flannelNet)
	m, _ := b.node("a", lending(filepath.Join(t.TempDir(), "subnet.env")))
	kerneltest.Until(t, func() bool { return len(part(t, m).Leased) == 1 })
	p := part(t, m).Leased[0]
	held := filepath.Join(filepath.Dir(m.Dir.Root()), "networks", "cbr0", p.Addr().Next().Next().String())
	must(t, os.MkdirAll(filepath.Dir(held), 0o755))
	must(t, os.WriteFile(held, []byte("c\neth0"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
	defer cancel()
	free, err := ReleaseBlock(ctx, b.open(t), "default", p)
	if free || err != nil {
		t.Errorf("a block of which host-local gave an address is free: %t, %v", free, err)
	}
	if got, err := m.allocatedAddrs("default"); err != nil || len(got) != 1 {
		t.Errorf("held here: %v, %v", got, err)
	}
}
