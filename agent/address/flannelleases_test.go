package address

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func withFlannel(ip, node string) func(*Options) {
	return func(o *Options) {
		o.Flannel = func() *cluster.FlannelLease {
			return &cluster.FlannelLease{PublicIP: netip.MustParseAddr(ip), Type: "vxlan", VNI: 1, MAC: "02:00:00:00:00:07", FairleadNode: node}
		}
	}
}

const theirLease = `{"PublicIP":"198.18.0.2","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"de:44:8e:3b:1f:da"}}`

// leases returns flannel's keys with their writers.
func leases(t *testing.T, b *bed) map[string]string {
	t.Helper()
	list, _, err := b.open(t).List(storetest.Context(t), cluster.FlannelPrefix)
	must(t, err)
	out := map[string]string{}
	for _, e := range list {
		l, err := cluster.ParseFlannelLease(e.Key, e.Value)
		must(t, err)
		out[strings.TrimPrefix(e.Key, "flannel/subnets/")] = l.FairleadNode
	}
	return out
}

// TestFlannelLeases checks that each block of this node has a lease, that flannel nodes' subnets are not claimed, and
// that the node keeps its former flanneld's subnet.
func TestFlannelLeases(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/22", "block": 24}]}`)
	storetest.Put(t, b.open(t), "flannel/subnets/10.244.2.0-24", theirLease)
	storetest.Put(t, b.open(t), "flannel/subnets/10.244.0.0-25", strings.Replace(theirLease, "0.2", "0.9", 1))
	m, stop := b.node("a", withFlannel("198.18.0.2", "a"))
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	if got := blocks(m)[0].String(); got != "10.244.2.0/24" {
		t.Errorf("the node has %s, and had 10.244.2.0/24 of flannel", got)
	}
	all := netip.MustParsePrefix("10.244.0.0/22")
	must(t, m.Need(storetest.Context(t), "default", all))
	must(t, m.Need(storetest.Context(t), "default", all))
	if err := m.Need(storetest.Context(t), "default", all); err == nil || !strings.Contains(err.Error(), errNoBlock.Error()) {
		t.Errorf("a block that overlaps with flannel's was claimed: %v", err)
	}
	want := map[string]string{"10.244.0.0-25": "", "10.244.1.0-24": "a", "10.244.2.0-24": "a", "10.244.3.0-24": "a"}
	got := leases(t, b)
	for key, ours := range want {
		if now, ok := got[key]; !ok || now != ours || len(got) != len(want) {
			t.Errorf("flannel's keys are %v, want %v", got, want)
		}
	}
	// A deleted lease is written again, and so is one that flanneld overwrote.
	key := "flannel/subnets/10.244.1.0-24"
	e, err := b.open(t).Get(storetest.Context(t), key)
	must(t, err)
	storetest.Put(t, b.open(t), "flannel/subnets/10.244.2.0-24", theirLease)
	kerneltest.Until(t, func() bool { return leases(t, b)["10.244.2.0-24"] == "a" })
	if now, err := b.open(t).Get(storetest.Context(t), key); err != nil || now.Revision != e.Revision {
		t.Errorf("a lease that was as it should be was written again: %v", err)
	}
	stop()
}

// TestFlannelLeasesOfRemovedNode checks that a removed node's leases are deleted with its blocks, except a lease that
// flanneld took back.
func TestFlannelLeasesOfRemovedNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, flannelNet)
	s := b.open(t)
	for _, block := range []string{"10.244.7.0-24", "10.244.8.0-24"} {
		storetest.Put(t, s, "blocks/default/"+block, `{"node": "gone", "subnet": "10.244.0.0/16"}`)
	}
	storetest.Put(t, s, "flannel/subnets/10.244.7.0-24", strings.TrimSuffix(theirLease, "}")+`,"Fairlead":"gone"}`)
	storetest.Put(t, s, "flannel/subnets/10.244.8.0-24", theirLease)
	m, _ := b.node("a", withFlannel("198.18.0.3", "a"), func(o *Options) { o.Grace = 1 })
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	kerneltest.Until(t, func() bool {
		must(t, m.reclaim(storetest.Context(t)))
		got := leases(t, b)
		_, left := got["10.244.7.0-24"]
		return !left
	})
	if got := leases(t, b); len(got) != 2 {
		t.Errorf("flannel's keys are %v: want the node's own, and flanneld's", got)
	}
	list, _, err := s.List(storetest.Context(t), cluster.BlocksPrefix)
	if must(t, err); len(list) != 1 {
		t.Errorf("blocks left: %v", list)
	}
}

// TestFlannelLeaseDualStack checks that both families share one lease. A second IPv6 block is not claimed, because a
// lease has no room for it.
func TestFlannelLeaseDualStack(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/16", "block": 24}, {"cidr": "fd00:244::/56", "block": 64}]}`)
	m, _ := b.node("a", withFlannel("198.18.0.2", "a"))
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 2 })
	got := leases(t, b)
	if len(got) != 1 {
		t.Errorf("flannel's keys are %v, want one", got)
	}
	for key := range got {
		if !strings.Contains(key, "&fd00:244:") {
			t.Errorf("flannel's key is %s, want one of both families", key)
		}
	}
	if err := m.Need(storetest.Context(t), "default", netip.MustParsePrefix("fd00:244::/56")); err == nil {
		t.Error("another block of IPv6 was claimed")
	}
}

// TestFlannelLeasesWaitForNode checks that no lease is claimed before this node's address is known and its document is
// in the store.
func TestFlannelLeasesWaitForNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, flannelNet)
	storetest.Put(t, b.open(t), "flannel/subnets/10.244.2.0-24", theirLease)
	s := b.open(t)
	m, _ := b.run(Options{Store: s, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir()), Flannel: func() *cluster.FlannelLease {
		return &cluster.FlannelLease{PublicIP: netip.MustParseAddr("198.18.0.2"), Type: "vxlan", VNI: 1, FairleadNode: "a"}
	}})
	kerneltest.Until(t, func() bool { return m.reconcile(storetest.Context(t)) != nil })
	if err := m.Need(storetest.Context(t), "default", netip.MustParsePrefix("10.244.0.0/16")); err == nil || len(blocks(m)) != 0 {
		t.Errorf("blocks %v were claimed before the store knew the node: %v", blocks(m), err)
	}
	storetest.Put(t, s, cluster.NodeKey("a"), "{}")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 && blocks(m)[0].String() == "10.244.2.0/24" })
}
