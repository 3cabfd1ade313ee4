package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// bed is a store with a network and nodes.
type bed struct {
	t    *testing.T
	path string
	open func(testing.TB) store.Store
}

const twoSubnets = `{"subnets": [{"cidr": "10.244.0.0/24", "block": 28}, {"name": "fixed", "cidr": "10.250.0.0/24", "assign": "cluster", "exclude": ["10.250.0.8/29"]}]}`

func newBed(t *testing.T, network string) *bed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	b := &bed{t: t, path: path, open: func(t testing.TB) store.Store {
		s, err := store.File(path)
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}}
	storetest.Put(t, b.open(t), cluster.NetworkKey("default"), network)
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node starts a node's manager. The returned function stops it.
func (b *bed) node(name string, change ...func(*Options)) (m *Manager, stop func()) {
	b.t.Helper()
	s := b.open(b.t)
	storetest.Put(b.t, s, cluster.NodeKey(name), "{}")
	o := Options{Store: s, Node: name, Dir: local.Open(b.t.TempDir(), b.t.TempDir())}
	for _, c := range change {
		c(&o)
	}
	return b.run(o)
}

func (b *bed) run(o Options) (m *Manager, stop func()) {
	m = NewManager(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() {
		_ = source.Follow(ctx, o.Store, append(cluster.Followed(), cluster.FlannelPrefix), m)
		done <- struct{}{}
	}()
	go func() { _ = m.Run(ctx); done <- struct{}{} }()
	stop = func() {
		cancel()
		<-done
		<-done
		done <- struct{}{} // so that stop can be called again
		done <- struct{}{}
	}
	b.t.Cleanup(stop)
	return m, stop
}

// blocks returns the blocks in a node's file.
func blocks(m *Manager) (list []netip.Prefix) {
	n, err := m.Dir.Read("default")
	if err != nil {
		return nil
	}
	for _, s := range n.Subnets {
		list = append(list, s.Blocks...)
	}
	return list
}

func hold(t testing.TB, m *Manager, o ipam.Owner, set ...ipam.Range) []ipam.IP {
	t.Helper()
	s, err := ipam.Open(storetest.Context(t), m.Dir.Addresses(), "default", ipam.Options{})
	must(t, err)
	defer s.Close()
	ips, err := s.Allocate(o, []ipam.RangeSet{set}, nil)
	must(t, err)
	return ips
}

// TestBlockPrefetch checks that a node claims its first block at once and the next before the first is full. It reports
// when none is left, and no two nodes get the same block.
func TestBlockPrefetch(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/26", "block": 28, "exclude": ["10.244.0.32/28"]}]}`)
	first, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(first)) == 1 })
	second, _ := b.node("b")
	kerneltest.Until(t, func() bool { return len(blocks(second)) == 1 })
	set, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/26")}.Ranges(blocks(first)[0])
	must(t, err)
	for i := range 11 {
		hold(t, first, ipam.Owner{ContainerID: fmt.Sprint("c", i), IfName: "eth0"}, set...)
	}
	kerneltest.Until(t, func() bool { return len(blocks(first)) == 2 })
	secondSet, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/26")}.Ranges(blocks(second)[0])
	must(t, err)
	seen := map[netip.Prefix]bool{}
	for _, p := range append(blocks(first), blocks(second)...) {
		if seen[p] || p.String() == "10.244.0.32/28" {
			t.Errorf("block %s is given twice, or excluded", p)
		}
		seen[p] = true
	}
	for i := range 11 { // of 13 addresses; there is no third block
		hold(t, second, ipam.Owner{ContainerID: fmt.Sprint("d", i), IfName: "eth0"}, secondSet...)
	}
	must(t, second.reconcile(storetest.Context(t)))
	for i := range 2 {
		hold(t, second, ipam.Owner{ContainerID: fmt.Sprint("e", i), IfName: "eth0"}, secondSet...)
	}
	if err := second.reconcile(storetest.Context(t)); !errors.Is(err, errNoBlock) {
		t.Errorf("all is full, and a look says %v", err)
	}
	storetest.Put(t, b.open(t), cluster.NetworkKey("default"), `{"subnets": [{"cidr": "10.244.0.0/26", "block": 28, "exclude": ["10.244.0.0/26"]}, {"cidr": "10.245.0.0/26", "block": 28}]}`)
	kerneltest.Until(t, func() bool { return len(blocks(second)) == 2 && len(second.Problems()) == 0 })
	must(t, second.reconcile(storetest.Context(t))) // an excluded subnet is not an error
	err = second.Need(storetest.Context(t), "default", netip.MustParsePrefix("10.244.0.0/26"))
	if !errors.Is(err, errNoBlock) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"10.9.0.0/16"} {
		if err := second.Need(storetest.Context(t), "default", netip.MustParsePrefix(bad)); err == nil {
			t.Errorf("a block of %s", bad)
		}
	}
	if err := second.Need(storetest.Context(t), "other", netip.MustParsePrefix("10.244.0.0/26")); err == nil {
		t.Error("a block of a network that is not there")
	}
}

func wants(ip string, fixed bool) local.Want {
	w := local.Want{Ranges: []local.Span{{First: netip.MustParseAddr("10.250.0.1"), Last: netip.MustParseAddr("10.250.0.20")}}, Fixed: fixed}
	if ip != "" {
		w.IP = netip.MustParseAddr(ip)
	}
	return w
}

func claimOne(m *Manager, container, pod string, w local.Want) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ips, err := m.Claim(ctx, local.ClaimArgs{Network: "default", Container: container, IfName: "eth0", Pod: pod, Wants: []local.Want{w}})
	if err != nil {
		return "", err
	}
	return ips[0].String(), nil
}

func ready(m *Manager) bool { m.mu.Lock(); defer m.mu.Unlock(); return m.ready }

// TestFixedAddressFollowsPod checks that a fixed address follows its pod by name. A request by another pod fails with
// the owner's name.
func TestFixedAddressFollowsPod(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	one, stop := b.node("a")
	two, _ := b.node("b")
	kerneltest.Until(t, func() bool { return ready(one) && ready(two) })
	ip, err := claimOne(one, "c1", "ns/db-0", wants("", true))
	must(t, err)
	again, err := claimOne(one, "c1", "ns/db-0", wants("", true))
	if err != nil || again != ip {
		t.Errorf("asked again: %s, %v", again, err)
	}
	must(t, one.Release(storetest.Context(t), local.Release{Network: "default", Container: "c1", IfName: "eth0"}))
	kerneltest.Until(t, func() bool { return ofStore(t, b, ip).Node == "" })
	moved, err := claimOne(two, "c2", "ns/db-0", wants("", true))
	if a := ofStore(t, b, ip); err != nil || moved != ip || a.Node != "b" || a.Container != "c2" || !a.Fixed {
		t.Errorf("moved to %s, %+v: %v", moved, a, err)
	}
	if _, err := claimOne(one, "c3", "ns/db-1", wants(ip, true)); err == nil || !contains(err, "fixed for ns/db-0") {
		t.Errorf("another pod: %v", err)
	}
	if _, err := claimOne(one, "c3", "", wants("", true)); err == nil || !contains(err, "K8S_POD_NAME") {
		t.Errorf("no pod: %v", err)
	}
	if _, err := claimOne(one, "c4", "ns/x", wants("10.9.0.1", false)); err == nil || !contains(err, "is not in") {
		t.Errorf("outside: %v", err)
	}
	// An explicitly requested address belongs to its container until the node is removed.
	if _, err := claimOne(one, "c5", "", wants("10.250.0.20", false)); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool {
		_, err := claimOne(two, "c6", "", wants("10.250.0.20", false))
		return contains(err, "on node a")
	})
	stop()
	removeKey(t, b.open(t), cluster.NodeKey("a"))
	kerneltest.Until(t, func() bool { _, err := claimOne(two, "c6", "", wants("10.250.0.20", false)); return err == nil })
}

func contains(err error, words string) bool {
	return err != nil && strings.Contains(err.Error(), words)
}

func ofStore(t testing.TB, b *bed, ip string) cluster.Address {
	t.Helper()
	e, err := b.open(t).Get(storetest.Context(t), cluster.AddressKey("default", netip.MustParseAddr(ip)))
	must(t, err)
	var a cluster.Address
	must(t, json.Unmarshal(e.Value, &a))
	return a
}

func removeKey(t testing.TB, s store.Store, key string) {
	t.Helper()
	e, err := s.Get(storetest.Context(t), key)
	must(t, err)
	_, err = s.Commit(storetest.Context(t), store.Op{Key: key, Expect: e.Revision})
	must(t, err)
}

// returning is a store in which a removed node comes back after the first commit.
type returning struct {
	store.Store
	node func()
}

func (r *returning) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	revision, err := r.Store.Commit(ctx, ops...)
	if r.node != nil {
		r.node()
		r.node = nil
	}
	return revision, err
}

// TestReclaimStopsWhenNodeReturns checks that a removed node that comes back while its blocks are released keeps the
// rest.
func TestReclaimStopsWhenNodeReturns(t *testing.T) {
	t.Parallel()
	s := newBed(t, twoSubnets).open(t)
	for _, block := range []string{"10.244.0.0-28", "10.244.0.16-28", "10.244.0.32-28"} {
		storetest.Put(t, s, cluster.BlocksPrefix+"default/"+block, `{"node": "gone", "subnet": "10.244.0.0/24"}`)
	}
	r := &returning{s, func() { storetest.Put(t, s, cluster.NodeKey("gone"), "{}") }}
	m := NewManager(Options{Store: r, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
	readStore(t, m, s)
	must(t, m.reclaimNode(storetest.Context(t), "gone"))
	list, _, err := s.List(storetest.Context(t), cluster.BlocksPrefix)
	must(t, err)
	if len(list) != 2 {
		t.Errorf("the node has %d blocks left, want 2", len(list))
	}
}

// TestReclaimRemovedNode checks that a removed node's blocks and addresses are released after the grace period, while
// fixed addresses stay with their owners. A node that is only silent keeps everything.
func TestReclaimRemovedNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	soon := func(o *Options) { o.Grace = 300 * time.Millisecond }
	gone, stop := b.node("gone", soon)
	kerneltest.Until(t, func() bool { return len(blocks(gone)) == 1 })
	ip, err := claimOne(gone, "c1", "ns/db-0", wants("", true))
	must(t, err)
	other, err := claimOne(gone, "c2", "ns/web", wants("", false))
	must(t, err)
	silent, stopSilent := b.node("silent", soon)
	kerneltest.Until(t, func() bool { return len(blocks(silent)) == 1 })
	stop()
	stopSilent()
	s := b.open(t)
	removeKey(t, s, cluster.NodeKey("gone"))
	last, _ := b.node("last", soon)
	var list []store.Entry
	kerneltest.Until(t, func() bool { // the keys are released one after another
		_, err := s.Get(storetest.Context(t), cluster.AddressKey("default", netip.MustParseAddr(other)))
		list, _, _ = s.List(storetest.Context(t), cluster.BlocksPrefix)
		return errors.Is(err, os.ErrNotExist) && !slices.ContainsFunc(list, func(e store.Entry) bool { return strings.Contains(string(e.Value), `"gone"`) })
	})
	if a := ofStore(t, b, ip); a.Node != "" || a.Owner != "ns/db-0" || !a.Fixed {
		t.Errorf("a fixed address became %+v", a)
	}
	if len(list) != 2 {
		t.Errorf("%d blocks: want those of last and silent", len(list))
	}
	// The node comes back with a container in its former block, which is free: it claims the block again. A block with
	// a new owner stays there.
	blk := blocks(gone)[0]
	set, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/24")}.Ranges(blk)
	must(t, err)
	hold(t, gone, ipam.Owner{ContainerID: "c9", IfName: "eth0"}, set...)
	storetest.Put(t, s, cluster.NodeKey("gone"), "{}")
	back := gone.Options
	back.Store = b.open(t)
	again, _ := b.run(back)
	kerneltest.Until(t, func() bool {
		l := blocks(again)
		return len(l) == 1 && l[0] == blk
	})
	_ = last
}

// TestUnpublishedNodeKeepsItsBlocks checks that an agent that has a session, but has not found its addresses yet, keeps
// its blocks. It may have containers that use them.
func TestUnpublishedNodeKeepsItsBlocks(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	soon := func(o *Options) { o.Grace = 300 * time.Millisecond }
	early, stop := b.node("early", soon)
	kerneltest.Until(t, func() bool { return len(blocks(early)) == 1 })
	gone, stopGone := b.node("gone", soon)
	kerneltest.Until(t, func() bool { return len(blocks(gone)) == 1 })
	stop()
	stopGone()
	s := b.open(t)
	session, err := s.Hold(storetest.Context(t), cluster.AliveKey("early"), []byte("{}"), time.Minute)
	must(t, err)
	removeKey(t, s, cluster.NodeKey("early"))
	removeKey(t, s, cluster.NodeKey("gone"))
	b.node("other", soon)
	has := func(node string) bool {
		list, _, err := s.List(storetest.Context(t), cluster.BlocksPrefix)
		must(t, err)
		return slices.ContainsFunc(list, func(e store.Entry) bool { return strings.Contains(string(e.Value), `"`+node+`"`) })
	}
	kerneltest.Until(t, func() bool { return !has("gone") })
	time.Sleep(time.Second) // several grace periods
	if _, err := ReleaseNode(storetest.Context(t), s, "early"); !contains(err, "node early is alive") || !has("early") {
		t.Errorf("the blocks of a node with a session were released, or could be: %v", err)
	}
	session.Release()
	kerneltest.Until(t, func() bool { return !has("early") })
}

// TestLostBlock checks that a block that went to another node while its node was away stays there and is reported,
// until no container holds one of its addresses.
func TestLostBlock(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	m, stop := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	blk := blocks(m)[0]
	set, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/24")}.Ranges(blk)
	must(t, err)
	hold(t, m, ipam.Owner{ContainerID: "c9", IfName: "eth0"}, set...)
	stop()
	storetest.Put(t, b.open(t), cluster.BlockKey("default", blk), `{"node":"b","subnet":"10.244.0.0/24"}`)
	o := m.Options
	o.Store = b.open(t)
	again, _ := b.run(o)
	kerneltest.Until(t, func() bool {
		p := again.Problems()
		return len(p) == 1 && strings.Contains(p[0], "it belongs to node b now, but containers here hold 1 of")
	})
	kerneltest.Until(t, func() bool { l := blocks(again); return len(l) == 1 && l[0] != blk })
	if p := again.Problems(); len(p) != 1 {
		t.Errorf("the file lacks the block, and the problems are %q", p)
	}
	a, err := ipam.Open(storetest.Context(t), again.Dir.Addresses(), "default", ipam.Options{})
	must(t, err)
	_, err = a.Release(ipam.Owner{ContainerID: "c9", IfName: "eth0"})
	must(t, errors.Join(err, a.Close()))
	kerneltest.Until(t, func() bool { return len(again.Problems()) == 0 })
}

// TestRenamedNode checks that a node with another name takes over the block that its containers use, unless the former name
// is alive: then it is another machine with a copy of this one's disk.
func TestRenamedNode(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{false, true} {
		b := newBed(t, twoSubnets)
		m, stop := b.node("a", func(o *Options) { o.Machine = "m" })
		kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
		blk := blocks(m)[0]
		set, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/24")}.Ranges(blk)
		must(t, err)
		hold(t, m, ipam.Owner{ContainerID: "c9", IfName: "eth0"}, set...)
		stop()
		s := b.open(t)
		if alive {
			_, err := s.Hold(storetest.Context(t), cluster.AliveKey("a"), []byte("{}"), time.Minute)
			must(t, err)
		}
		o := m.Options
		o.Store, o.Node = b.open(t), "a2"
		again, _ := b.run(o)
		owner := func() string {
			e, err := s.Get(storetest.Context(t), cluster.BlockKey("default", blk))
			must(t, err)
			return string(e.Value)
		}
		if alive {
			kerneltest.Eventually(t, func() error {
				if p := again.Problems(); len(p) != 1 || !strings.Contains(p[0], "it belongs to node a now, but containers here hold 1 of") {
					return fmt.Errorf("the block is %s, and the node has the problems %q", owner(), p)
				}
				return nil
			})
			if !strings.Contains(owner(), `"a"`) {
				t.Errorf("node a is alive, and its block is %s", owner())
			}
			continue
		}
		kerneltest.Eventually(t, func() error {
			if o, list := owner(), blocks(again); !strings.Contains(o, `"a2"`) || !slices.Contains(list, blk) {
				return fmt.Errorf("the block is %s, and the node has %v and the problems %q", o, list, again.Problems())
			}
			return nil
		})
		kerneltest.Until(t, func() bool { return len(again.Problems()) == 0 })
	}
}

// TestBlockOfAnotherLength checks that a node that was removed does not claim its block again if the network's blocks
// have another length by now: it would overlap with those of other nodes.
func TestBlockOfAnotherLength(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24", "block": 27}]}`)
	storetest.Put(t, b.open(t), "blocks/default/10.244.0.0-27", `{"node":"b","subnet":"10.244.0.0/24"}`)
	dir := local.Open(t.TempDir(), t.TempDir())
	old := netip.MustParsePrefix("10.244.0.0/28")
	must(t, dir.Write(&local.Network{Name: "default", Node: "a", Subnets: []local.Subnet{{CIDR: netip.MustParsePrefix("10.244.0.0/24"), Blocks: []netip.Prefix{old}}}}))
	set, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/24")}.Ranges(old)
	must(t, err)
	hold(t, &Manager{Options: Options{Dir: dir}}, ipam.Owner{ContainerID: "c1", IfName: "eth0"}, set...)
	m, _ := b.node("a", func(o *Options) { o.Dir = dir })
	kerneltest.Until(t, func() bool { l := blocks(m); return len(l) == 1 && l[0] != old && ready(m) })
	if _, err := b.open(t).Get(storetest.Context(t), cluster.BlockKey("default", old)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node claimed %s next to 10.244.0.0/27 of node b: %v", old, err)
	}
	if p := m.Problems(); len(p) != 1 || !strings.Contains(p[0], "blocks of its subnet of network default have another length, but containers here hold 1 of its addresses") {
		t.Errorf("the problems are %q", p)
	}
}

// TestOwnBlockOfAnotherLength gives a node a block whose length is not that of the subnet any more, or that is larger than
// the subnet. No node routes it, so the node takes another one and assigns no address of the old one.
func TestOwnBlockOfAnotherLength(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"10.244.0.0/28", "10.244.0.0/14", "10.244.0.0/16"} {
		b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/16", "block": 26}]}`)
		was := netip.MustParsePrefix(old)
		storetest.Put(t, b.open(t), cluster.BlockKey("default", was), `{"node":"a","subnet":"10.244.0.0/24"}`)
		m, _ := b.node("a")
		var inFile []netip.Prefix
		kerneltest.Until(t, func() bool {
			n, err := m.Dir.Read("default")
			inFile = nil
			if err == nil {
				inFile = n.Subnets[0].Blocks
			}
			return len(inFile) > 0 && ready(m)
		})
		if len(inFile) != 1 || inFile[0].Bits() != 26 || old == "10.244.0.0/28" && inFile[0].Overlaps(was) {
			t.Errorf("with the old block %s, the node assigns addresses of %v", old, inFile)
		}
	}
}

// TestEndpointsOfRemovedNode verifies that what a removed node published about its containers is gone before another node
// may use their addresses, both after the grace period and by an administrator's command.
func TestEndpointsOfRemovedNode(t *testing.T) {
	t.Parallel()
	for _, command := range []bool{false, true} {
		b := newBed(t, twoSubnets)
		s := b.open(t)
		storetest.Put(t, s, cluster.BlockKey("default", netip.MustParsePrefix("10.244.0.64/26")), `{"node":"gone","subnet":"10.244.0.0/16"}`)
		endpoint, other := cluster.EndpointKey("gone", "c1", "eth0"), cluster.EndpointKey("gone2", "c1", "eth0")
		storetest.Put(t, s, endpoint, `{"network":"default","ips":["10.244.0.70"]}`)
		storetest.Put(t, s, other, `{"network":"default","ips":["10.244.1.70"]}`)
		if command {
			keys, err := ReleaseNode(storetest.Context(t), s, "gone")
			if err != nil || len(keys) != 2 || keys[0] != endpoint {
				t.Errorf("released %v, %v", keys, err)
			}
		} else {
			m := NewManager(Options{Store: s, Node: "a", Log: slog.New(slog.DiscardHandler)})
			entries, revision, err := s.List(storetest.Context(t), "")
			must(t, err)
			m.Reset(source.DecodeAll(entries), revision)
			must(t, m.reclaimNode(storetest.Context(t), "gone"))
		}
		for key, want := range map[string]bool{endpoint: false, other: true, cluster.BlockKey("default", netip.MustParsePrefix("10.244.0.64/26")): false} {
			if _, err := s.Get(storetest.Context(t), key); (err == nil) != want {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

// TestRequestedAddressOfInvalidNode verifies that an address is not taken from a container whose node has an invalid
// document: the node exists.
func TestRequestedAddressOfInvalidNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := b.open(t)
	storetest.Put(t, s, cluster.NodeKey("b"), `{"addresses": ["127.0.0.1/8"]}`)
	for ip, node := range map[string]string{"10.250.0.18": "b", "10.250.0.19": "removed"} {
		storetest.Put(t, s, cluster.AddressKey("default", netip.MustParseAddr(ip)), `{"owner": "x eth0", "node": "`+node+`", "container": "x", "ifName": "eth0"}`)
	}
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return ready(m) })
	if ip, err := claimOne(m, "c1", "", wants("10.250.0.18", false)); err == nil || !strings.Contains(err.Error(), "belongs to x eth0 on node b") {
		t.Errorf("got %s, %v", ip, err)
	}
	if ip, err := claimOne(m, "c1", "", wants("10.250.0.19", false)); err != nil || ip != "10.250.0.19" {
		t.Errorf("of a removed node: got %s, %v", ip, err)
	}
}

// TestReleasesWaitForStore checks that releases stay in the journal while the store is unavailable, and run in order
// before any claim.
func TestReleasesWaitForStore(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	m, stop := b.node("a")
	kerneltest.Until(t, func() bool { return ready(m) })
	ip, err := claimOne(m, "c1", "", wants("", false))
	must(t, err)
	stop()
	must(t, m.Dir.AppendReleases(storetest.Context(t), local.Release{Network: "default", Container: "c1", IfName: "eth0"},
		local.Release{Network: "default", Container: "nobody", IfName: "eth0"}))
	if list, err := m.Dir.PendingReleases(); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	o := m.Options
	o.Store = b.open(t)
	again, _ := b.run(o)
	kerneltest.Until(t, func() bool { return ready(again) })
	got, err := claimOne(again, "c2", "", wants(ip, false))
	if err != nil || got != ip {
		t.Errorf("%s, %v", got, err)
	}
	if list, err := again.Dir.PendingReleases(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestReleasesWaitWhileStoreIsAway checks that recorded releases send the store nothing until it answers again.
func TestReleasesWaitWhileStoreIsAway(t *testing.T) {
	t.Parallel()
	s := newBed(t, twoSubnets).open(t)
	c := &counting{Store: s}
	m := NewManager(Options{Store: c, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
	readStore(t, m, s)
	go m.serveClaims(t.Context())
	_, err := claimOne(m, "c1", "", wants("10.250.0.5", false))
	must(t, err)
	must(t, m.Dir.AppendReleases(storetest.Context(t), local.Release{Network: "default", Container: "c1", IfName: "eth0"}))
	m.Disconnected(errors.New("no answer"))
	before := c.commits.Load()
	for range 3 {
		must(t, m.readJournal(storetest.Context(t)))
	}
	if n := c.commits.Load() - before; n != 0 {
		t.Errorf("%d commits while the store is away", n)
	}
	m.Reconnected()
	must(t, m.readJournal(storetest.Context(t)))
	if _, err := s.Get(storetest.Context(t), cluster.AddressKey("default", netip.MustParseAddr("10.250.0.5"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the address is not released after the store answers: %v", err)
	}
}

// TestReleaseUnheldAddresses checks that addresses assigned to this node are released after a while if no container
// holds them.
func TestReleaseUnheldAddresses(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	m, _ := b.node("a", func(o *Options) { o.Grace = 500 * time.Millisecond })
	kerneltest.Until(t, func() bool { return ready(m) })
	lost, err := claimOne(m, "lost", "", wants("", false))
	must(t, err)
	kept, err := claimOne(m, "kept", "", wants("", false))
	must(t, err)
	a := netip.MustParseAddr(kept)
	hold(t, m, ipam.Owner{ContainerID: "kept", IfName: "eth0"}, ipam.Range{Subnet: netip.MustParsePrefix("10.250.0.0/24"), Start: a, End: a, Gateway: netip.MustParseAddr("10.250.0.1")})
	kerneltest.Until(t, func() bool {
		_, err := b.open(t).Get(storetest.Context(t), cluster.AddressKey("default", netip.MustParseAddr(lost)))
		return errors.Is(err, os.ErrNotExist)
	})
	if ofStore(t, b, kept).Container != "kept" {
		t.Error("what is held was released")
	}
}

// readStore gives a manager the content of the store, and returns the store's revision.
func readStore(t *testing.T, m *Manager, s store.Store) int64 {
	t.Helper()
	entries, revision, err := s.List(storetest.Context(t), "")
	must(t, err)
	m.Reset(source.DecodeAll(entries), revision)
	return revision
}

// TestUnheldAddressOfAnEarlierContainer checks that the time for which no container holds an address begins again with
// each container.
func TestUnheldAddressOfAnEarlierContainer(t *testing.T) {
	t.Parallel()
	s := newBed(t, twoSubnets).open(t)
	m := NewManager(Options{Store: s, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
	readStore(t, m, s)
	go m.serveClaims(t.Context())
	round := func() { must(t, m.releaseUnheld(storetest.Context(t))) }
	_, err := claimOne(m, "c1", "", wants("10.250.0.5", false))
	must(t, err)
	round()
	must(t, m.Dir.AppendReleases(storetest.Context(t), local.Release{Network: "default", Container: "c1", IfName: "eth0"}))
	must(t, m.readJournal(storetest.Context(t)))
	for key := range m.unheld {
		m.unheld[key] = time.Now().Add(-time.Hour)
	}
	round()
	_, err = claimOne(m, "c2", "", wants("10.250.0.5", false)) // and its plugin waits for a lock
	must(t, err)
	round()
	if _, err := s.Get(storetest.Context(t), cluster.AddressKey("default", netip.MustParseAddr("10.250.0.5"))); err != nil {
		t.Errorf("the address of a new container was released: %v", err)
	}
}

// TestConcurrentFixedClaims checks that two agents with outdated views assign a pod one fixed address, not two.
func TestConcurrentFixedClaims(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	var managers []*Manager
	for i := range 3 { // with the content of the store from before
		s := b.open(t)
		m := NewManager(Options{Store: s, Node: fmt.Sprint("n", i), Dir: local.Open(t.TempDir(), t.TempDir())})
		readStore(t, m, s)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { m.serveClaims(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
		managers = append(managers, m)
	}
	for round := range 10 {
		var all sync.WaitGroup
		got := make([]string, len(managers))
		for i, m := range managers {
			all.Go(func() {
				var err error
				if got[i], err = claimOne(m, fmt.Sprint("c", i), fmt.Sprint("ns/db-", round), wants("", true)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got[0] != got[1] || got[1] != got[2] {
			t.Fatalf("round %d: one pod has %v", round, got)
		}
	}
}

// TestFirstBlockExcluded checks a subnet whose first block is excluded.
func TestFirstBlockExcluded(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24", "block": 28, "exclude": ["10.244.0.0/28"]}]}`)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	if blocks(m)[0].Addr() == netip.MustParseAddr("10.244.0.0") {
		t.Error("the node has a block of which every address is excluded")
	}
}

// interrupted is a store that runs a function before each commit.
type interrupted struct {
	store.Store
	before func()
}

func (i *interrupted) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	i.before()
	return i.Store.Commit(ctx, ops...)
}

// TestNetworkDeletedDuringClaim deletes a network between the choice of a block or an address and its commit.
func TestNetworkDeletedDuringClaim(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(m *Manager) error{
		"block": func(m *Manager) error {
			return m.Need(storetest.Context(t), "default", netip.MustParsePrefix("10.244.0.0/24"))
		},
		"address": func(m *Manager) error { _, err := claimOne(m, "c", "ns/pod", wants("", false)); return err },
	} {
		b := newBed(t, twoSubnets)
		s := b.open(t)
		m := NewManager(Options{Store: &interrupted{s, func() {
			if e, err := s.Get(storetest.Context(t), "networks/default"); err == nil {
				_, err = s.Commit(storetest.Context(t), store.Op{Key: e.Key, Expect: e.Revision})
				must(t, err)
			}
		}}, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
		readStore(t, m, s)
		ctx, cancel := context.WithCancel(t.Context())
		go m.serveClaims(ctx)
		if err := ask(m); err == nil || !strings.Contains(err.Error(), `the cluster has no network "default"`) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		if text := dump(t, s); text != "" {
			t.Errorf("%s: the store has %s", what, text)
		}
	}
}

// counting is a store that counts its lists and commits.
type counting struct {
	store.Store
	lists, commits atomic.Int64
}

func (c *counting) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	c.commits.Add(1)
	return c.Store.Commit(ctx, ops...)
}

func (c *counting) List(ctx context.Context, prefix string) ([]store.Entry, int64, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, prefix)
}

// TestFirstFixedAddress checks that a pod's first fixed address is found by its slot, without a list of the network's
// addresses, and that a pod keeps it on another node whose view is outdated. A slot of an older agent needs one list.
func TestFirstFixedAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := &counting{Store: b.open(t)}
	storetest.Put(t, s, cluster.NodeKey("old"), "{}")
	entries, revision, err := s.List(t.Context(), "")
	must(t, err)
	stale := func(node string) *Manager {
		m := NewManager(Options{Store: s, Node: node, Dir: local.Open(t.TempDir(), t.TempDir())})
		m.Reset(source.DecodeAll(entries), revision)
		go m.serveClaims(t.Context())
		return m
	}
	first, second := stale("a"), stale("b")
	s.lists.Store(0)
	var all sync.WaitGroup
	for i := range 15 {
		all.Go(func() {
			if _, err := claimOne(first, fmt.Sprint("c", i), fmt.Sprint("ns/pod", i), wants("", true)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	had := addressOf(t, s, "ns/pod7")
	if n := s.lists.Load(); n != 0 {
		t.Errorf("%d lists for first fixed addresses, want none", n)
	}
	must(t, first.Release(storetest.Context(t), local.Release{Network: "default", Container: "c7", IfName: "eth0"}))
	if ip, err := claimOne(second, "moved", "ns/pod7", wants("", true)); err != nil || ip != had {
		t.Errorf("on another node the pod has %s, want %s: %v", ip, had, err)
	}
	storetest.Put(t, s, cluster.FixedKey("default", "ns/legacy", "eth0"), "a")
	storetest.Put(t, s, cluster.AddressKey("default", netip.MustParseAddr("10.250.0.20")), `{"owner":"ns/legacy","fixed":true,"ifName":"eth0"}`)
	if ip, err := claimOne(second, "legacy", "ns/legacy", wants("", true)); err != nil || ip != "10.250.0.20" || s.lists.Load() != 1 {
		t.Errorf("a pod of an older agent has %s after %d lists: %v", ip, s.lists.Load(), err)
	}
}

func addressOf(t *testing.T, s store.Store, pod string) string {
	t.Helper()
	entries, _, err := s.(*counting).Store.List(t.Context(), cluster.AddressesPrefix)
	must(t, err)
	for _, e := range entries {
		if strings.Contains(string(e.Value), `"`+pod+`"`) {
			return path.Base(e.Key)
		}
	}
	t.Fatalf("pod %s has no address", pod)
	return ""
}
