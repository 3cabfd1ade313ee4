package address

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// model records which container has which address, according to the containers.
type model struct {
	mu sync.Mutex
	of map[string]string // container by address
	t  *testing.T
	n  int
}

func (m *model) gave(network, ip, container string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := network + " " + ip
	if other := m.of[key]; other != "" && other != container {
		m.t.Errorf("%s is %s's and was given to %s", key, other, container)
	}
	m.of[key] = container
	m.n++
}

// back records that a container released its addresses.
func (m *model) back(container string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, c := range m.of {
		if c == container {
			delete(m.of, key)
		}
	}
}

// TestChurn adds and removes containers on three nodes while agents are killed and restarted and an etcd member dies.
// No address may be assigned twice or lost.
func TestChurn(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	b := &bed{t: t, open: func(t testing.TB) store.Store { return c.Store(t) }}
	storetest.Put(t, b.open(t), cluster.NetworkKey("default"), twoSubnets)
	m := &model{of: map[string]string{}, t: t}
	const nodes, workers, rounds = 3, 6, 30
	var all sync.WaitGroup
	for n := range nodes {
		now := &restarted{b: b}
		now.m, now.stop = b.node(fmt.Sprint("n", n), func(o *Options) { o.Grace = time.Minute })
		kerneltest.Until(t, func() bool { return ready(now.m) })
		for w := range workers {
			all.Go(func() {
				for r := range rounds {
					if r == rounds/2 && w == 0 {
						now.restart()
					}
					now.round(t, m, fmt.Sprintf("c%d-%d-%d", n, w, r))
				}
			})
		}
	}
	time.AfterFunc(300*time.Millisecond, c.Members[2].Kill)
	all.Wait()
	s := b.open(t)
	kerneltest.Until(t, func() bool {
		list, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
		return err == nil && len(list) == len(m.of)
	})
	if want := 2 * nodes * workers * rounds; m.n != want {
		t.Errorf("%d addresses were assigned, want %d", m.n, want)
	}
}

// restarted is a node whose agent is restarted while in use.
type restarted struct {
	b    *bed
	mu   sync.RWMutex
	m    *Manager
	stop func()
}

func (n *restarted) restart() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stop()
	o := n.m.Options
	o.Store = n.b.open(n.b.t)
	n.m, n.stop = n.b.run(o)
}

// round runs a container's life: one address of each of two networks. One network has barely more addresses than there
// are containers.
func (n *restarted) round(t *testing.T, m *model, container string) {
	ctx := storetest.Context(t)
	spans := map[string]local.Span{
		"whereabouts":   {First: netip.MustParseAddr("192.168.0.1"), Last: netip.MustParseAddr("192.168.0.20")},
		"whereabouts-b": {First: netip.MustParseAddr("fd00::1"), Last: netip.MustParseAddr("fd00::ffff")},
	}
	var note []local.Release
	for network, span := range spans {
		for {
			ip, err := n.claim(ctx, network, container, span)
			if err == nil {
				m.gave(network, ip, container)
				break
			}
			if ctx.Err() != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
		note = append(note, local.Release{Network: network, Container: container, IfName: "eth0"})
	}
	time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
	m.back(container) // once journaled, the address may be reassigned at once
	n.mu.RLock()
	defer n.mu.RUnlock()
	if err := n.m.Dir.AppendReleases(ctx, note...); err != nil {
		t.Error(err)
	}
}

func (n *restarted) claim(ctx context.Context, network, container string, span local.Span) (string, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ips, err := n.m.Claim(ctx, local.ClaimArgs{Network: network, Container: container, IfName: "eth0", Whereabouts: true, Wants: []local.Want{{Ranges: []local.Span{span}}}})
	if err != nil {
		return "", err
	}
	return ips[0].String(), nil
}
