package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/store"
)

// firstVNI reserves the small numbers for administrators.
const firstVNI = 1 << 12

// vnis assigns a VNI to each isolated network that this node needs and that has none. Each VNI has its own key in the
// store, so concurrent assignments cannot collide.
func (p *publisher) vnis(ctx context.Context) error {
	var without []*cluster.Network
	p.storeCache.read(func(s *cluster.Snapshot) {
		for _, name := range desired.Present(s, p.conf.Node, p.wanted.names()) {
			if n := s.Networks[name]; n.VNI == 0 {
				without = append(without, n)
			}
		}
	})
	for _, n := range without {
		if err := p.assignVNI(ctx, *n); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) assignVNI(ctx context.Context, n cluster.Network) error {
	n.VNI = firstVNI + rand.N(cluster.MaxVNI-firstVNI)
	value, err := json.Marshal(&n)
	if err != nil {
		return err
	}
	key := cluster.NetworkKey(n.Name)
	_, err = p.store.Commit(ctx,
		store.Op{Key: cluster.VNIKey(n.VNI), Value: []byte(n.Name)},
		store.Op{Key: key, Value: value, Expect: p.storeCache.revisionOf(key)})
	if errors.Is(err, store.ErrConflict) {
		return nil // another node assigned one, or the number is in use: the cache will show it
	}
	if err != nil {
		return fmt.Errorf("assign a VNI to network %s: %w", n.Name, err)
	}
	return nil
}
