package address

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestUnusedVNI checks that a VNI that an agent reserved and did not write to its network is released after the grace
// period, and that one in use, a new one, and that of an invalid network stay. The first node with an agent does this.
func TestUnusedVNI(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24"}]}`)
	s := b.open(t)
	storetest.Put(t, s, cluster.NetworkKey("blue"), `{"isolated": true, "vni": 5001, "subnets": [{"cidr": "10.0.0.0/24"}]}`)
	storetest.Put(t, s, cluster.NetworkKey("invalid"), `{"isolated": true, "vni": 5005, "subnets": []}`)
	for vni, network := range map[int]string{5001: "blue", 5002: "blue", 5003: "removed", 5005: "invalid", 4999: "", 5006: "no name"} {
		storetest.Put(t, s, cluster.VNIKey(vni), network)
	}
	storetest.Put(t, s, cluster.NodeKey("0-without-agent"), "{}")
	m, _ := b.node("a", func(o *Options) { o.Grace = time.Hour })
	storetest.Put(t, s, cluster.NodeKey("a"), `{"id": "1"}`)
	second, _ := b.node("b", func(o *Options) { o.Grace = time.Nanosecond })
	looked := func() time.Time {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.unusedVNIs.at
	}
	kerneltest.Until(t, func() bool { return !looked().IsZero() })
	storetest.Put(t, s, cluster.VNIKey(5004), "blue")
	kerneltest.Until(t, func() bool { return ready(second) })
	must(t, m.reclaim(t.Context())) // too early
	must(t, second.reclaim(t.Context()))
	must(t, second.reclaim(t.Context()))
	if _, err := s.Get(t.Context(), cluster.VNIKey(5002)); err != nil {
		t.Errorf("VNI 5002: %v", err)
	}
	m.mu.Lock()
	m.unusedVNIs.at = time.Now().Add(-2 * time.Hour)
	m.mu.Unlock()
	must(t, m.reclaim(t.Context()))
	kerneltest.Until(t, func() bool {
		_, err := s.Get(t.Context(), cluster.VNIKey(5002))
		_, err2 := s.Get(t.Context(), cluster.VNIKey(5003))
		return errors.Is(err, os.ErrNotExist) && errors.Is(err2, os.ErrNotExist)
	})
	for _, vni := range []int{4999, 5006} { // of no network
		if _, err := s.Get(t.Context(), cluster.VNIKey(vni)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("VNI %d: %v", vni, err)
		}
	}
	for _, vni := range []int{5001, 5004, 5005} {
		if _, err := s.Get(t.Context(), cluster.VNIKey(vni)); err != nil {
			t.Errorf("VNI %d: %v", vni, err)
		}
	}
}

// TestVNIOfChangedNetwork checks that an agent that was paused, and knows a former state of a network, releases nothing.
func TestVNIOfChangedNetwork(t *testing.T) {
	t.Parallel()
	b := newBed(t, `{"subnets": [{"cidr": "10.244.0.0/24"}]}`)
	s := b.open(t)
	storetest.Put(t, s, cluster.NetworkKey("blue"), `{"isolated": true, "vni": 5001, "subnets": [{"cidr": "10.0.0.0/24"}]}`)
	storetest.Put(t, s, cluster.VNIKey(5002), "blue")
	m, _ := b.node("a", func(o *Options) { o.Grace = time.Hour })
	kerneltest.Until(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.unusedVNIs.keys) == 1
	})
	m.mu.Lock()
	m.unusedVNIs.at = time.Now().Add(-2 * time.Hour)
	m.state.rev[cluster.NetworkKey("blue")]--
	m.mu.Unlock()
	must(t, m.reclaim(t.Context()))
	if _, err := s.Get(t.Context(), cluster.VNIKey(5002)); err != nil {
		t.Errorf("VNI 5002: %v", err)
	}
}
