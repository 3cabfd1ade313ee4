package store

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func (e *etcd) Hold(ctx context.Context, key string, value []byte, ttl time.Duration) (*Held, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	c, err := e.client()
	if err != nil {
		return nil, err
	}
	lease, err := e.grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	revision, err := e.holdBy(ctx, key, value, lease)
	if err != nil {
		e.revoke(lease)
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	alive, err := c.KeepAlive(ctx, lease)
	if err != nil {
		stop()
		e.revoke(lease)
		return nil, e.failed(ctx, err)
	}
	lost, ended := make(chan struct{}), make(chan struct{})
	e.held.Add(1)
	go func() {
		defer close(ended)
		e.keep(ctx, lease, alive, lost)
	}()
	return &Held{Revision: revision, Lost: lost, release: func() { stop(); <-ended }}, nil
}

// grant requests a lease. Its TTL is in whole seconds.
func (e *etcd) grant(ctx context.Context, ttl time.Duration) (lease clientv3.LeaseID, err error) {
	err = e.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Grant(ctx, int64(max(ttl, time.Second)/time.Second))
		if err == nil {
			lease = r.ID
		}
		return err
	})
	return lease, err
}

func (e *etcd) holdBy(ctx context.Context, key string, value []byte, lease clientv3.LeaseID) (revision int64, err error) {
	full := e.full(key)
	err = e.call(ctx, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(full), "=", 0)).
			Then(clientv3.OpPut(full, string(value), clientv3.WithLease(lease))).Commit()
		if err == nil && !r.Succeeded {
			err = &ConflictError{[]string{key}}
		}
		if err == nil {
			revision = r.Header.Revision
		}
		return err
	})
	return revision, err
}

// keep waits until the context or the store ends, and then releases the key, or until the lease is lost.
func (e *etcd) keep(ctx context.Context, lease clientv3.LeaseID, alive <-chan *clientv3.LeaseKeepAliveResponse, lost chan struct{}) {
	defer e.held.Done()
	for {
		select {
		case _, ok := <-alive:
			if ok {
				continue
			}
			if ctx.Err() == nil {
				close(lost)
			}
			e.revoke(lease)
			return
		case <-e.ctx.Done():
			close(lost)
			e.revoke(lease)
			return
		case <-ctx.Done():
			e.revoke(lease)
			return
		}
	}
}

// revoke revokes a lease. If etcd does not answer, or signIn has dropped the client, the lease expires.
func (e *etcd) revoke(lease clientv3.LeaseID) {
	e.mu.Lock()
	c := e.conn
	e.mu.Unlock()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.DialTimeout)
	defer cancel()
	_, _ = c.Revoke(ctx, lease)
}
