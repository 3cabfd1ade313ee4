package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
)

// endpoints publishes which containers of this host are on the cluster's networks. It reads the attachment records, so
// plugins need not report anything.
type endpoints struct {
	store      store.Store
	node       string
	dir        *attach.Dir
	policed    podstate.Dir // attachments with labels for network policy
	storeCache *storeCache
	log        *slog.Logger
	failures   int // attempts that failed, since the last one that did not

	inStore map[string]store.Entry // what the store has; nil: not read yet
	lists   int                    // storeCache.resyncs() when inStore was read

	list  []attached
	stamp string // of the list; "" forces a read
}

// attached is an attachment record with its addresses, and what network policy knows about it.
type attached struct {
	*attach.Record
	ips    []netip.Addr
	policy *podstate.Endpoint // nil: the plugin fairlead-policy is not in its list
}

const endpointsEvery = time.Second

// perCommit is the maximum number of keys in one transaction.
const perCommit = 64

// run publishes every second until the context ends. A failed attempt is repeated.
func (e *endpoints) run(ctx context.Context) {
	t := time.NewTicker(endpointsEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			within, cancel := context.WithTimeout(ctx, callFor)
			err := e.once(within)
			cancel()
			if ctx.Err() == nil {
				e.logFailure(err)
			}
			if err != nil {
				e.inStore = nil // the store's content is unknown now: list it again
			}
		}
	}
}

// unreported is the number of failures that are not worth a line in the log: two writers had a conflict, or the store
// was restarted.
const unreported = 5

// logFailure logs that containers have not been published for some time, and when they are again.
func (e *endpoints) logFailure(err error) {
	switch {
	case err != nil:
		e.failures++
		if e.failures == unreported {
			e.log.Warn("cannot publish this node's containers; network policy of other nodes may not know them", "error", err)
		}
	case e.failures >= unreported:
		e.log.Info("this node's containers are published again")
		fallthrough
	default:
		e.failures = 0
	}
}

func (e *endpoints) once(ctx context.Context) error {
	lists := e.storeCache.resyncs()
	if lists == 0 {
		return nil
	}
	if e.inStore == nil || e.lists != lists { // a restored store may have lost keys
		e.lists = lists
		list, _, err := e.store.List(ctx, cluster.EndpointsPrefix+e.node+"/")
		if err != nil {
			return err
		}
		e.inStore = map[string]store.Entry{}
		for _, x := range list {
			if store.ValidKey(x.Key) { // one invalid key would fail the whole transaction
				e.inStore[x.Key] = x
			}
		}
	}
	want, err := e.wanted()
	if err != nil {
		return err
	}
	ops := e.changes(want)
	for len(ops) > 0 {
		n := min(perCommit, len(ops))
		revision, err := e.store.Commit(ctx, ops[:n]...)
		if err != nil {
			return err
		}
		for _, o := range ops[:n] {
			e.inStore[o.Key] = store.Entry{Key: o.Key, Value: o.Value, Revision: revision}
			if o.Value == nil {
				delete(e.inStore, o.Key)
			}
		}
		ops = ops[n:]
	}
	return nil
}

func (e *endpoints) changes(want map[string][]byte) (ops []store.Op) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if have, ok := e.inStore[key]; !ok || string(have.Value) != string(want[key]) {
			ops = append(ops, store.Op{Key: key, Value: want[key], Expect: have.Revision})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.inStore)) {
		if want[key] == nil {
			ops = append(ops, store.Op{Key: key, Expect: e.inStore[key].Revision})
		}
	}
	return ops
}

// wanted returns the keys and values to publish: this host's attachments to the cluster's networks.
func (e *endpoints) wanted() (map[string][]byte, error) {
	list, err := e.records()
	if err != nil {
		return nil, err
	}
	var subnets []netip.Prefix
	e.storeCache.read(func(s *cluster.Snapshot) { subnets = enforce.NetworksOf(s)[""].Subnets })
	out := map[string][]byte{}
	for _, rec := range list {
		p := cluster.Endpoint{IPs: rec.ips}
		isolated, is := local.IsolatedNetwork(rec.Host)
		switch {
		case is:
			p.Network = isolated
		case inside(p.IPs, subnets):
			p.Network = cluster.DefaultNetwork
		}
		if p.Network == "" {
			continue
		}
		if of := rec.policy; of != nil {
			p.Pod, p.Labels, p.Since = enforce.EndpointKey(of), of.Labels, of.Uptime
		}
		if out[cluster.EndpointKey(e.node, rec.ContainerID, rec.IfName)], err = json.Marshal(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// currentStamp returns a value that changes with the attachment records and with what network policy knows about them,
// or "" if that is uncertain. ADD may write the second a moment after the first.
func (e *endpoints) currentStamp() string {
	records := e.dir.Stamp()
	policed, changed := e.policed.EndpointStamp()
	if records == "" || time.Since(changed) < attach.Tick {
		return ""
	}
	return records + policed
}

// records returns the attachment records. It reads them only if a directory changed since the last call.
func (e *endpoints) records() ([]attached, error) {
	stamp := e.currentStamp()
	if stamp != "" && stamp == e.stamp {
		return e.list, nil
	}
	list, err := e.dir.List("")
	if err != nil {
		return nil, err
	}
	e.list, e.stamp = nil, stamp
	for _, rec := range list {
		of, err := e.policed.Endpoint(podstate.Key{ContainerID: rec.ContainerID, IfName: rec.IfName})
		if err != nil {
			of = nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.stamp = "" // try again in the next second
		}
		e.list = append(e.list, attached{rec, addressesOf(rec), of})
	}
	return e.list, nil
}

// addressesOf returns an attachment's addresses from the last plugin's result.
func addressesOf(rec *attach.Record) (out []netip.Addr) {
	for _, p := range rec.Parts {
		r, err := p.Result.Get()
		if err != nil || r == nil {
			continue
		}
		out = nil // the last plugin's result has all addresses
		for _, ip := range r.IPs {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}

func inside(ips []netip.Addr, subnets []netip.Prefix) bool {
	for _, ip := range ips {
		for _, s := range subnets {
			if s.Contains(ip) {
				return true
			}
		}
	}
	return false
}
