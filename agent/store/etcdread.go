package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (e *etcd) entry(kv *mvccpb.KeyValue) Entry {
	value := kv.Value
	if value == nil {
		value = []byte{} // nil would mean deleted
	}
	return Entry{Key: e.short(string(kv.Key)), Value: value, Revision: kv.ModRevision}
}

func (e *etcd) Get(ctx context.Context, key string) (got Entry, err error) {
	err = e.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		seen := e.lineage.seen()
		r, err := c.Get(ctx, e.full(key))
		if err != nil {
			return err
		}
		e.lineage.observe(r.Header, seen)
		if len(r.Kvs) == 0 {
			return fmt.Errorf("%s: %w", key, os.ErrNotExist)
		}
		got = e.entry(r.Kvs[0])
		return nil
	})
	return got, err
}

// listAgain limits how often a list is restarted after etcd compacted its revision.
const listAgain = 3

func (e *etcd) List(ctx context.Context, prefix string) (entries []Entry, revision int64, err error) {
	for range listAgain {
		entries, revision, err = e.listOnce(ctx, prefix)
		if !errors.Is(err, ErrCompacted) {
			break
		}
	}
	return entries, revision, err
}

// listOnce lists everything as of one revision.
func (e *etcd) listOnce(ctx context.Context, prefix string) (entries []Entry, revision int64, err error) {
	for _, from := range e.ranges(prefix) {
		var some []Entry
		if some, revision, err = e.pages(ctx, from, revision); err != nil {
			return nil, 0, err
		}
		entries = append(entries, some...)
	}
	return entries, revision, nil
}

// pages reads all pages as of a revision. 0 means the first page's revision.
func (e *etcd) pages(ctx context.Context, prefix string, revision int64) (entries []Entry, _ int64, err error) {
	from, to := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		var page *clientv3.GetResponse
		seen := e.lineage.seen()
		err := e.call(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
			page, err = c.Get(ctx, from, clientv3.WithRange(to), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		e.lineage.observe(page.Header, seen)
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			entries = append(entries, e.entry(kv))
		}
		if !page.More || len(page.Kvs) == 0 {
			return entries, revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func (e *etcd) Commit(ctx context.Context, ops ...Op) (revision int64, err error) {
	if err := CheckOps(ops); err != nil {
		return 0, err
	}
	var when []clientv3.Cmp
	var then, otherwise []clientv3.Op
	for _, o := range ops {
		key := e.full(o.Key)
		if o.Below {
			when = append(when, clientv3.Compare(clientv3.ModRevision(key), "<", o.Expect+1).WithPrefix())
			otherwise = append(otherwise, clientv3.OpGet(key, clientv3.WithPrefix(), clientv3.WithMinModRev(o.Expect+1), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
			continue
		}
		when = append(when, clientv3.Compare(clientv3.ModRevision(key), "=", o.Expect))
		otherwise = append(otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		switch {
		case o.isCheck():
		case o.Value == nil:
			then = append(then, clientv3.OpDelete(key))
		default:
			then = append(then, clientv3.OpPut(key, string(o.Value)))
		}
	}
	err = e.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		seen := e.lineage.seen()
		r, err := c.Txn(ctx).If(when...).Then(then...).Else(otherwise...).Commit()
		if err != nil {
			return err
		}
		e.lineage.observe(r.Header, seen)
		revision = r.Header.Revision
		if !r.Succeeded {
			return conflict(ops, r)
		}
		return nil
	})
	return revision, err
}

// conflict returns a ConflictError with the keys that were not at the expected revisions.
func conflict(ops []Op, r *clientv3.TxnResponse) error {
	var keys []string
	for i, o := range ops {
		now := int64(0)
		if kvs := r.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
			now = kvs[0].ModRevision
		}
		if o.Below && now > o.Expect || !o.Below && now != o.Expect {
			keys = append(keys, o.Key)
		}
	}
	return &ConflictError{keys}
}
