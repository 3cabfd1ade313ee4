package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/policy/stored"
	"github.com/fairlead/fairlead/agent/store"
)

// ApplyPolicy creates a network policy or a namespace in the store, or changes it. It returns Created, Changed or
// Unchanged. With dry it returns what it would do.
func ApplyPolicy(ctx context.Context, s store.Store, d stored.Document, dry bool) (did string, err error) {
	value, err := d.Encode()
	if err != nil {
		return "", err
	}
	err = retried(func() error {
		have, err := s.Get(ctx, d.Key())
		switch {
		case errors.Is(err, os.ErrNotExist):
			did = Created
		case err != nil:
			return err
		case bytes.Equal(have.Value, value):
			did = Unchanged
			return nil
		default:
			did = Changed
		}
		if dry {
			return nil
		}
		if _, err := s.Commit(ctx, store.Op{Key: d.Key(), Value: value, Expect: have.Revision}); err != nil {
			return fmt.Errorf("write %s: %w", d.Name(), err)
		}
		return nil
	})
	return did, err
}

// DeletePolicy deletes a network policy or a namespace, such as "networkpolicy/shop/db", from the store.
func DeletePolicy(ctx context.Context, s store.Store, name string, dry bool) error {
	return retried(func() error {
		have, err := s.Get(ctx, cluster.PoliciesPrefix+name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is no policy %s\nList them: fairlead policy list", name)
		}
		if err != nil || dry {
			return err
		}
		if _, err := s.Commit(ctx, store.Op{Key: have.Key, Expect: have.Revision}); err != nil {
			return fmt.Errorf("delete %s: %w", name, err)
		}
		return nil
	})
}

// StoredPolicy is a network policy or a namespace in the store.
type StoredPolicy struct {
	Name    string `json:"name"`              // "networkpolicy/shop/db"
	Invalid string `json:"invalid,omitempty"` // why agents cannot read it
}

// Policies returns the network policies and namespaces in the store, sorted by name.
func Policies(ctx context.Context, s store.Store) ([]StoredPolicy, error) {
	list, _, err := s.List(ctx, cluster.PoliciesPrefix)
	if err != nil {
		return nil, err
	}
	out := []StoredPolicy{}
	for _, e := range list {
		p := StoredPolicy{Name: strings.TrimPrefix(e.Key, cluster.PoliciesPrefix)}
		if _, err := stored.Decode(e.Key, e.Value); err != nil {
			p.Invalid = err.Error()
		}
		out = append(out, p)
	}
	return out, nil
}
