package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestEndpoints checks that endpoints are published once, and again after the store lost them and was listed again.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	s, err := (&config.Config{Store: config.Store{File: filepath.Join(t.TempDir(), "store")}}).Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	e := &endpoints{store: s, node: "a", dir: attach.Open(t.TempDir()), storeCache: v}
	writeRecord(t, e.dir)
	key := cluster.EndpointKey("a", "c", "eth0")
	look := func(what string, want bool) {
		t.Helper()
		if err := e.once(t.Context()); err != nil {
			t.Fatal(what, err)
		}
		list, _, err := s.List(t.Context(), key)
		if err != nil || (len(list) == 1) != want {
			t.Errorf("%s: %v, %v; want it there %t", what, list, err, want)
		}
	}
	look("before the first sync", false)
	v.Reset(source.DecodeAll([]store.Entry{{Key: cluster.NetworkKey("default"), Value: []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`), Revision: 1}}), 1)
	look("after the first sync", true)
	old, err := s.Get(t.Context(), key)
	if err == nil {
		_, err = s.Commit(t.Context(), store.Op{Key: key, Expect: old.Revision})
	}
	if err != nil {
		t.Fatal(err)
	}
	look("the key was deleted", false)
	v.Reset(source.DecodeAll([]store.Entry{{Key: cluster.NetworkKey("default"), Value: []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`), Revision: 1}}), 1)
	look("after another full sync", true)
}

// TestEndpointWithoutPath checks that a container stays published if its network namespace leaves the path of its ADD. It
// may run, and it has its addresses until DEL.
func TestEndpointWithoutPath(t *testing.T) {
	t.Parallel()
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	v.Reset(source.DecodeAll([]store.Entry{{Key: cluster.NetworkKey("default"), Value: []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`), Revision: 1}}), 1)
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self/ns/net", path); err != nil {
		t.Fatal(err)
	}
	e := &endpoints{node: "a", dir: attach.Open(t.TempDir()), storeCache: v}
	writeRecordAt(t, e.dir, path, "10.244.0.2/26")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if want, err := e.wanted(); err != nil || len(want) != 1 {
		t.Errorf("published %v, %v, want one container", want, err)
	}
}

// TestEndpointLabelsWrittenLater checks that a container's labels are published if network policy's file of the container
// is written after the agent has read its record.
func TestEndpointLabelsWrittenLater(t *testing.T) {
	t.Parallel()
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	v.Reset(source.DecodeAll([]store.Entry{{Key: cluster.NetworkKey("default"), Value: []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`), Revision: 1}}), 1)
	e := &endpoints{node: "a", dir: attach.Open(t.TempDir()), policed: podstate.Open(local.Open(t.TempDir(), "")), storeCache: v}
	writeRecord(t, e.dir)
	labels := func() string {
		t.Helper()
		want, err := e.wanted()
		if err != nil || len(want) != 1 {
			t.Fatal(want, err)
		}
		return string(want[cluster.EndpointKey("a", "c", "eth0")])
	}
	for e.stamp == "" { // until the record is old enough for the list to be kept
		if got := labels(); strings.Contains(got, "labels") {
			t.Fatal(got)
		}
	}
	if err := e.policed.WriteEndpoint(&podstate.Endpoint{Network: "pods", ContainerID: "c", IfName: "eth0", Labels: map[string]string{"app": "web"}}); err != nil {
		t.Fatal(err)
	}
	if got := labels(); !strings.Contains(got, `"labels":{"app":"web"}`) {
		t.Errorf("published %s, want the label app=web", got)
	}
}

// TestEndpointsFailureLogged checks that the log says once that containers are not published, and once that they are.
func TestEndpointsFailureLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &endpoints{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 * unreported {
		e.logFailure(errors.New("no space"))
	}
	for range 2 {
		e.logFailure(nil)
	}
	e.logFailure(errors.New("a conflict"))
	e.logFailure(nil)
	if got := log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, `error="no space"`) != 1 || strings.Count(got, "again") != 1 {
		t.Errorf("logged\n%s", got)
	}
}

// TestStoreWithoutEndpoints checks that an agent publishes no containers to a store that keeps none, as in Kubernetes. Each
// such commit would read the agent's session from the API twice.
func TestStoreWithoutEndpoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &withoutEndpoints{Store: newStore(t)}
	a, err := newAgent(Options{
		Config: &config.Config{Node: "a", Network: simulated()}, Store: s, Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog(),
	}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
	if err != nil {
		t.Fatal(err)
	}
	writeRecord(t, attach.Open(a.o.Run))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	defer func() { stop(); <-done }()
	kerneltest.Until(t, func() bool { return a.storeCache.revisionOf(cluster.NodeKey("a")) != 0 })
	time.Sleep(3 * endpointsEvery)
	if n := s.commits.Load(); n != 0 {
		t.Errorf("%d commits of containers", n)
	}
}

// withoutEndpoints is a store that keeps no endpoints, and counts the commits of them.
type withoutEndpoints struct {
	store.Store
	commits atomic.Int32
}

func (*withoutEndpoints) KeepsNoEndpoints() {}

func (w *withoutEndpoints) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	if slices.ContainsFunc(ops, func(o store.Op) bool { return strings.HasPrefix(o.Key, cluster.EndpointsPrefix) }) {
		w.commits.Add(1)
	}
	return w.Store.Commit(ctx, ops...)
}

// writeRecord writes the record of an attachment whose network namespace is the current one.
func writeRecord(t *testing.T, dir *attach.Dir) {
	t.Helper()
	writeRecordOf(t, dir, "10.244.0.2/26")
}

func writeRecordOf(t *testing.T, dir *attach.Dir, address string) {
	t.Helper()
	writeRecordAt(t, dir, "/proc/self/ns/net", address)
}

func writeRecordAt(t *testing.T, dir *attach.Dir, netns, address string) {
	t.Helper()
	r := dir.New("pods", "c", "eth0", netns)
	r.Parts = []attach.Part{{Plugin: "ptp", Done: true, Result: attach.LazyOf(&cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix(address)}}})}}
	if err := dir.Write(r); err != nil {
		t.Fatal(err)
	}
	r.Unlock()
}
