package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// firstVNI leaves the small numbers to people.
const firstVNI = 1 << 12

// vnis gives each isolated network that is needed here and has none a VNI: a VNI's
// key is one network's, so none is given twice, whoever gives it.
func (p *publisher) vnis(ctx context.Context) error {
	var without []*cluster.Network
	p.view.read(func(s *cluster.Snapshot) {
		for _, name := range presence(s, p.conf.Node) {
			if n := s.Networks[name]; n.VNI == 0 {
				without = append(without, n)
			}
		}
	})
	for _, n := range without {
		if err := p.giveVNI(ctx, *n); err != nil {
			return err
		}
	}
	return nil
}

func (p *publisher) giveVNI(ctx context.Context, n cluster.Network) error {
	n.VNI = firstVNI + rand.N(cluster.MaxVNI-firstVNI)
	value, err := json.Marshal(&n)
	if err != nil {
		return err
	}
	key := cluster.NetworkKey(n.Name)
	_, err = p.store.Commit(ctx,
		store.Op{Key: cluster.VNIKey(n.VNI), Value: []byte(n.Name)},
		store.Op{Key: key, Value: value, Was: p.view.entry(key).Revision})
	if errors.Is(err, store.ErrConflict) {
		return nil // another node gave it one, or the number is taken: the view will tell
	}
	if err != nil {
		return fmt.Errorf("give network %s a VNI: %w", n.Name, err)
	}
	return nil
}
