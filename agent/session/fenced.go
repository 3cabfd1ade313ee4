package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// Store returns the store with commits that succeed only during the session. A commit without a session fails with the
// error of Revision.
func (s *Session) Store() store.Store { return &fenced{s.store, s} }

type fenced struct {
	store.Store
	session *Session
}

func (f *fenced) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	held := f.session.current()
	if held == nil {
		_, err := f.session.Revision()
		return 0, err
	}
	return f.session.commit(ctx, held, ops)
}

// commit writes a transaction as part of a session.
func (s *Session) commit(ctx context.Context, held *store.Held, ops []store.Op) (int64, error) {
	key := cluster.AliveKey(s.Node)
	revision, err := s.store.Commit(ctx, append(slices.Clone(ops), store.Op{Key: key, Verify: true, Expect: held.Revision})...)
	if c, ok := errors.AsType[*store.ConflictError](err); ok && slices.Contains(c.Keys, key) {
		err = fmt.Errorf("this agent's session ended before the commit: %w", store.ErrUnavailable)
		s.end(held, err)
	}
	return revision, err
}
