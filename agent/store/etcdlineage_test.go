package store

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestRestoreCountedOnce lets the answers to concurrent calls arrive in another order than etcd gave them. One restore
// counts once. Another one counts again.
func TestRestoreCountedOnce(t *testing.T) {
	t.Parallel()
	var l lineage
	answer := func(revision int64, seen position, want int64) {
		t.Helper()
		l.observe(&etcdserverpb.ResponseHeader{ClusterId: 1, RaftTerm: 2, Revision: revision}, seen)
		if got, _ := l.state(); got != want {
			t.Errorf("after an answer at revision %d: %d restores, want %d", revision, got, want)
		}
	}
	answer(90, l.seen(), 0)
	old := l.seen()
	answer(52, old, 1)
	answer(51, old, 1)
	answer(91, old, 1) // from before the restore
	answer(53, l.seen(), 1)
	answer(40, l.seen(), 2)
}
