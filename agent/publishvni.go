package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/store"
)

// firstVNI reserves the small numbers for administrators.
const firstVNI = 1 << 12

// vnis assigns a VNI to each isolated network that this node needs and that has none. Each VNI has its own key in the
// store, so concurrent assignments cannot collide.
func (p *publisher) vnis(ctx context.Context) error {
	var without []string
	p.storeCache.read(func(s *cluster.Snapshot) {
		for _, name := range desired.Present(s, p.conf.Node, p.wanted.names()) {
			if s.Networks[name].VNI == 0 {
				without = append(without, name)
			}
		}
	})
	var errs []error
	for _, name := range without {
		if err := p.assignVNI(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("assign a VNI to network %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// assignVNI adds a VNI to the network's document as the store has it. Encoding the network again would drop fields at
// their default, and the API server lets an agent change nothing but the VNI.
func (p *publisher) assignVNI(ctx context.Context, network string) error {
	key, vni := cluster.NetworkKey(network), firstVNI+rand.N(cluster.MaxVNI-firstVNI)
	e, err := p.store.Get(ctx, key)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was deleted: the cache will show it
	}
	if err != nil {
		return err
	}
	if _, err := cluster.Decode(key, e.Value); err != nil {
		return err // an earlier version is in effect, and this one may be anything: "null"
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(e.Value, &fields); err != nil {
		return err
	}
	fields["vni"] = json.RawMessage(strconv.Itoa(vni))
	value, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = p.store.Commit(ctx,
		store.Op{Key: cluster.VNIKey(vni), Value: []byte(network)},
		store.Op{Key: key, Value: value, Expect: p.storeCache.revisionOf(key)})
	if errors.Is(err, store.ErrConflict) {
		return nil // another node assigned one, or the number is in use: the cache will show it
	}
	return err
}
