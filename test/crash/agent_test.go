package crash

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// agent starts the address-allocation part of an agent, with its own store. The owners recorded in the store are part
// of the machine's snapshot.
func agent(m *machine) string {
	m.T.Helper()
	s, err := store.File(filepath.Join(m.Dir, "store"))
	must(m.T, err)
	storetest.Put(m.T, s, cluster.NetworkKey("default"), `{"subnets": [{"cidr": "10.1.0.0/24"}, {"cidr": "fd01::/112"}]}`)
	storetest.Put(m.T, s, cluster.NodeKey("here"), "{}")
	dir := local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run"))
	journal(m, dir)
	l, err := address.Listen(dir.Socket())
	must(m.T, err)
	manager := address.NewManager(address.Options{Store: s, Node: "here", Dir: dir})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 3)
	for _, f := range []func() error{
		func() error { return source.Follow(ctx, s, cluster.Followed(), manager) },
		func() error { return manager.Run(ctx) },
		func() error { return (&address.Server{Handlers: manager.Handlers()}).Serve(ctx, l) },
	} {
		go func() { _ = f(); done <- struct{}{} }()
	}
	m.T.Cleanup(func() {
		cancel()
		for range cap(done) {
			<-done
		}
		_ = s.Close()
	})
	m.waitIdle = func() {
		kerneltest.Until(m.T, func() bool { list, err := dir.PendingReleases(); return err == nil && len(list) == 0 })
	}
	m.store, m.extra = s, func() string { return storedAddresses(m.T, s) }
	kerneltest.Until(m.T, func() bool { _, err := dir.Read("default"); return err == nil })
	return dir.Socket()
}

// journal creates the journal's lock file, which exists from the journal's first line on.
func journal(m *machine, dir local.Dir) {
	must(m.T, dir.AppendReleases(m.T.Context(), local.Release{Network: "default", Container: "none"}))
	_, err := dir.TakeReleases(m.T.Context())
	must(m.T, errors.Join(err, dir.ClearTaken()))
}

// storedAddresses lists the addresses that have owners in the store.
func storedAddresses(t testing.TB, s store.Store) string {
	t.Helper()
	list, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
	must(t, err)
	var b strings.Builder
	for _, e := range list {
		b.WriteString("store " + e.Key + "\n")
	}
	return b.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// isolatedNetwork starts an agent, creates the namespace of an isolated network and returns its name. Namespace names
// are global on the machine, so each call uses a different one.
func isolatedNetwork(m *machine) string {
	m.T.Helper()
	agent(m)
	network := "crash" + strings.TrimPrefix(filepath.Base(m.Dir), "machine-")
	storetest.Put(m.T, m.store, cluster.NetworkKey(network), `{"isolated": true, "subnets": [{"cidr": "10.1.0.0/24"}, {"cidr": "fd01::/112"}]}`)
	netns := kerneltest.Netns(m.T)
	must(m.T, os.MkdirAll(local.NetnsDir, 0o755))
	must(m.T, os.Symlink(netns, local.NetnsPath(network)))
	m.T.Cleanup(func() { _ = os.Remove(local.NetnsPath(network)) })
	dir := local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run"))
	kerneltest.Until(m.T, func() bool { // the first ADD of a network waits in the same way
		return dir.Call(m.T.Context(), local.OpBlock, local.BlockArgs{Network: network}, nil) == nil
	})
	kerneltest.Until(m.T, func() bool {
		n, err := dir.Read(network)
		return err == nil && len(n.Subnets[0].Blocks) > 0 && len(n.Subnets[1].Blocks) > 0
	})
	m.observe(netns)
	return network
}
