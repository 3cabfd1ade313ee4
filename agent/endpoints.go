package agent

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
)

// endpoints tells the store which containers of this host are on the cluster's
// networks. It goes by the records of attachments, so it needs no plugin to tell.
type endpoints struct {
	store store.Store
	node  string
	dir   *attach.Dir
	view  *view

	told  map[string]store.Entry // what the store has; nil: not read yet
	lists int                    // of the view, when it was read

	list  []attached
	stamp string // of the list; "": it is to be read again
}

// attached is an attachment with its addresses.
type attached struct {
	*attach.Record
	ips []netip.Addr
}

const endpointsEvery = time.Second

// perCommit is how many keys go in one transaction.
const perCommit = 64

// run does so until the context ends. What fails is tried again.
func (e *endpoints) run(ctx context.Context) {
	t := time.NewTicker(endpointsEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			within, cancel := context.WithTimeout(ctx, callFor)
			if err := e.once(within); err != nil {
				e.told = nil // somebody else was here, or it is not known what was done
			}
			cancel()
		}
	}
}

func (e *endpoints) once(ctx context.Context) error {
	lists := e.view.listed()
	if lists == 0 {
		return nil
	}
	if e.told == nil || e.lists != lists { // a store that was set back has forgotten some
		e.lists = lists
		list, _, err := e.store.List(ctx, cluster.EndpointsPrefix+e.node+"/")
		if err != nil {
			return err
		}
		e.told = map[string]store.Entry{}
		for _, x := range list {
			if store.ValidKey(x.Key) { // another's, which no transaction may name: it would fail whole
				e.told[x.Key] = x
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
			e.told[o.Key] = store.Entry{Key: o.Key, Value: o.Value, Revision: revision}
			if o.Value == nil {
				delete(e.told, o.Key)
			}
		}
		ops = ops[n:]
	}
	return nil
}

func (e *endpoints) changes(want map[string][]byte) (ops []store.Op) {
	for _, key := range sortedKeys(want) {
		if have, ok := e.told[key]; !ok || string(have.Value) != string(want[key]) {
			ops = append(ops, store.Op{Key: key, Value: want[key], Was: have.Revision})
		}
	}
	for _, key := range sortedKeys(e.told) {
		if want[key] == nil {
			ops = append(ops, store.Op{Key: key, Was: e.told[key].Revision})
		}
	}
	return ops
}

// wanted are this host's attachments to networks of the cluster.
func (e *endpoints) wanted() (map[string][]byte, error) {
	list, err := e.records()
	if err != nil {
		return nil, err
	}
	var subnets []netip.Prefix
	e.view.read(func(s *cluster.Snapshot) {
		if n := s.Networks[cluster.DefaultNetwork]; n != nil {
			for _, x := range n.Subnets {
				subnets = append(subnets, x.CIDR)
			}
		}
	})
	out := map[string][]byte{}
	for _, rec := range list {
		p := cluster.Endpoint{IPs: rec.ips}
		isolated, is := strings.CutPrefix(rec.Host, local.NetnsPath(""))
		switch {
		case is:
			p.Network = isolated
		case inside(p.IPs, subnets):
			p.Network = cluster.DefaultNetwork
		}
		if p.Network == "" || !rec.Living() {
			continue
		}
		if out[cluster.EndpointKey(e.node, rec.ContainerID, rec.IfName)], err = json.Marshal(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// records are read only when they are others than a second ago.
func (e *endpoints) records() ([]attached, error) {
	stamp := e.dir.Stamp()
	if stamp != "" && stamp == e.stamp {
		return e.list, nil
	}
	list, err := e.dir.List("")
	if err != nil {
		return nil, err
	}
	e.list, e.stamp = nil, stamp
	for _, rec := range list {
		e.list = append(e.list, attached{rec, addressesOf(rec)})
	}
	return e.list, nil
}

// addressesOf are an attachment's, as its plugins said.
func addressesOf(rec *attach.Record) (out []netip.Addr) {
	for _, p := range rec.Parts {
		r, err := p.Result.Get()
		if err != nil || r == nil {
			continue
		}
		out = nil // the last plugin's result has them all
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
