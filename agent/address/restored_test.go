package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// holdOne records that a container here holds an address that the cluster assigned.
func holdOne(t testing.TB, m *Manager, network, container string, ip netip.Addr) {
	t.Helper()
	s, err := ipam.Open(storetest.Context(t), m.Dir.Addresses(), network, ipam.Options{})
	must(t, err)
	defer s.Close()
	_, err = s.Allocate(ipam.Owner{ContainerID: container, IfName: "eth0"},
		[]ipam.RangeSet{{{Subnet: netip.PrefixFrom(ip, 24).Masked(), Start: ip, End: ip}}}, nil)
	must(t, err)
}

func claimWhereabouts(t testing.TB, m *Manager, container, pod string) netip.Addr {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	span := local.Span{First: netip.MustParseAddr("192.168.0.1"), Last: netip.MustParseAddr("192.168.0.200")}
	ips, err := m.Claim(ctx, local.ClaimArgs{Network: "whereabouts", Container: container, IfName: "eth0", Pod: pod, Whereabouts: true, Wants: []local.Want{{Ranges: []local.Span{span}}}})
	must(t, err)
	return ips[0]
}

// TestStoreRestoredFromBackup restores etcd from a backup that lacks later assignments. Held addresses are claimed
// again as before. Those with a new owner are reported and left alone. No held address is assigned twice.
func TestStoreRestoredFromBackup(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	b := &bed{t: t, open: func(t testing.TB) store.Store { return c.Store(t) }}
	s, e := b.open(t), c.Members[0]
	storetest.Put(t, s, cluster.NetworkKey("default"), twoSubnets)
	storetest.Put(t, s, cluster.NodeKey("a"), "{}")
	e.Kill()
	restore := e.Backup()
	e.Restart()
	e.Wait()
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	block := blocks(m)[0]
	set, err := local.Subnet{CIDR: netip.MustParsePrefix("10.244.0.0/24")}.Ranges(block)
	must(t, err)
	hold(t, m, ipam.Owner{ContainerID: "c0", IfName: "eth0"}, set...)
	kept, lost := claimWhereabouts(t, m, "c1", "ns/web"), claimWhereabouts(t, m, "c2", "")
	holdOne(t, m, "whereabouts", "c1", kept)
	holdOne(t, m, "whereabouts", "c2", lost)
	e.Kill()
	restore()
	e.Restart()
	e.Wait()
	// An agent that knows only the backup assigns one of the addresses, before or after this node claims it again.
	other, err := json.Marshal(cluster.Address{Owner: "x eth0", Node: "b", Container: "x", IfName: "eth0"})
	must(t, err)
	storetest.Put(t, b.open(t), cluster.NodeKey("b"), "{}")
	storetest.Put(t, b.open(t), cluster.AddressKey("whereabouts", lost), string(other))
	value := func(key string) string {
		e, err := s.Get(storetest.Context(t), key)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(e.Value)
	}
	kerneltest.Until(t, func() bool {
		return strings.Contains(value(cluster.BlockKey("default", block)), `"a"`) &&
			strings.Contains(value(cluster.AddressKey("whereabouts", kept)), `"owner":"ns/web"`)
	})
	untilConflict(t, m, "c2", lost)
	if got := value(cluster.AddressKey("whereabouts", lost)); got != string(other) {
		t.Errorf("another's address became %s", got)
	}
	for i := range 5 {
		if ip := claimWhereabouts(t, m, fmt.Sprint("new", i), ""); ip == kept || ip == lost {
			t.Errorf("%s is held and was given again", ip)
		}
	}
}

// untilConflict waits until a node reports that its container holds an address that the store assigns to x on node b.
func untilConflict(t testing.TB, m *Manager, container string, ip netip.Addr) {
	t.Helper()
	want := fmt.Sprintf("container %s eth0 on this node holds %s, but the store assigns it to x eth0 on node \"b\"", container, ip)
	kerneltest.Until(t, func() bool { return strings.Contains(fmt.Sprint(m.Problems()), want) })
}

// TestReassignedAddress assigns an address that a container holds to another node, as an administrator can. The node
// reports it, whether a watch or a conflict shows the change first.
func TestReassignedAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := b.open(t)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	other := `{"owner":"x eth0","node":"b","container":"x","ifName":"eth0"}`
	watched := claimWhereabouts(t, m, "c1", "")
	holdOne(t, m, "whereabouts", "c1", watched)
	kerneltest.Until(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return !m.recheck })
	storetest.Put(t, s, cluster.AddressKey("whereabouts", watched), other)
	untilConflict(t, m, "c1", watched)
	alone := NewManager(Options{Store: s, Node: "a", Dir: m.Dir}) // it has no watch
	alone.Reset([]source.Entry{source.Decode(store.Entry{
		Key:   cluster.AddressKey("whereabouts", watched),
		Value: []byte(`{"owner":"c1 eth0","node":"a","container":"c1","ifName":"eth0"}`), Revision: 1,
	})}, 1)
	alone.consumeRecheck()
	must(t, alone.refresh(storetest.Context(t), []string{cluster.AddressKey("whereabouts", watched)}))
	must(t, alone.reclaimLocalAddresses(storetest.Context(t)))
	untilConflict(t, alone, "c1", watched)
}

// TestRestoredTwice reports a restore again before the addresses were claimed, as several watches can. The address keeps
// its pod.
func TestRestoredTwice(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s, dir := b.open(t), local.Open(t.TempDir(), t.TempDir())
	m := NewManager(Options{Store: s, Node: "a", Dir: dir})
	ip := netip.MustParseAddr("192.168.0.1")
	holdOne(t, m, "whereabouts", "c1", ip)
	key := cluster.AddressKey("whereabouts", ip)
	value := `{"owner":"ns/web","node":"a","container":"c1","ifName":"eth0"}`
	m.Reset([]source.Entry{source.Decode(store.Entry{Key: key, Value: []byte(value), Revision: 10})}, 10)
	for range 2 {
		m.Restored()
		m.Reset(nil, 1)
	}
	must(t, m.reclaimLocalAddresses(storetest.Context(t)))
	e, err := s.Get(storetest.Context(t), key)
	must(t, err)
	if !strings.Contains(string(e.Value), `"owner":"ns/web"`) {
		t.Errorf("the address was claimed again as %s", e.Value)
	}
}

// TestDeletedAddress deletes an address that a container holds, as an administrator can. The node claims it again as it
// was. It does not claim an address that its container has released.
func TestDeletedAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	s := b.open(t)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return len(blocks(m)) == 1 })
	kept, released := claimWhereabouts(t, m, "c1", "ns/web"), claimWhereabouts(t, m, "c2", "")
	holdOne(t, m, "whereabouts", "c1", kept)
	key := cluster.AddressKey("whereabouts", kept)
	before, err := s.Get(storetest.Context(t), key)
	must(t, err)
	for _, key := range []string{key, cluster.AddressKey("whereabouts", released)} {
		kerneltest.Until(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return !m.recheck })
		e, err := s.Get(storetest.Context(t), key)
		must(t, err)
		_, err = s.Commit(storetest.Context(t), store.Op{Key: key, Expect: e.Revision})
		must(t, err)
	}
	kerneltest.Until(t, func() bool {
		e, err := s.Get(storetest.Context(t), key)
		return err == nil && string(e.Value) == string(before.Value)
	})
	gone := cluster.AddressKey("whereabouts", released)
	kerneltest.Until(t, func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.state.revision(gone) == 0 && !m.recheck })
	if e, err := s.Get(storetest.Context(t), gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an address that no container holds was claimed again: %s, %v", e.Value, err)
	}
}
