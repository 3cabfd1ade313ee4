package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestStoreCache checks that the cache survives a restart and ignores keys that the agent does not use.
func TestStoreCache(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "snapshot")
	kicks := 0
	v := newStoreCache(file, func() { kicks++ }, quietLog())
	if v.read(func(*cluster.Snapshot) { t.Error("read called f") }) {
		t.Error("the cache is known before the first sync")
	}
	node := store.Entry{Key: "nodes/a", Value: []byte(`{"id": "1"}`), Revision: 3}
	v.Reset(source.DecodeAll([]store.Entry{node, {Key: "alive/a", Value: []byte(`{}`), Revision: 4}}), 5)
	v.Change(source.Batch{Revision: 6, Entries: []source.Entry{source.Decode(store.Entry{Key: "endpoints/a/c/eth0", Value: []byte(`{}`), Revision: 6})}})
	if kicks != 1 {
		t.Errorf("%d kicks, want one: endpoints change no object", kicks)
	}
	v.Change(source.Batch{Revision: 7, Entries: []source.Entry{source.Decode(store.Entry{Key: "nodes/b", Value: []byte(`{"id": "2"}`), Revision: 7})}})
	v.Change(source.Batch{Revision: 8, Entries: []source.Entry{source.Gone("nodes/a", 8)}})
	v.save()
	again := newStoreCache(file, func() {}, quietLog())
	known := again.read(func(s *cluster.Snapshot) {
		if s.Nodes["a"] != nil || s.Nodes["b"] == nil || len(s.Endpoints)+len(s.Alive) != 0 {
			t.Errorf("the saved snapshot is %+v", s)
		}
	})
	if !known || again.synced() || again.revisionOf("nodes/b") != 7 {
		t.Errorf("known %v, synced %v, revision %d", known, again.synced(), again.revisionOf("nodes/b"))
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if newStoreCache(file, func() {}, quietLog()).read(func(*cluster.Snapshot) {}) {
		t.Error("a damaged file counts as known state")
	}
}

// TestSaveErrorIsLoggedOnce checks that a full or a read-only disk does not fill the log: the cache is saved each
// second.
func TestSaveErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	dir := filepath.Join(t.TempDir(), "absent")
	v := newStoreCache(filepath.Join(dir, "snapshot"), func() {}, slog.New(slog.NewTextHandler(&log, nil)))
	v.Reset(nil, 1)
	for range 3 {
		v.save()
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "replace "+dir+"/snapshot: no such file or directory") {
		t.Errorf("logged %q, want one line with the name of the file", got)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	v.save()
	if _, err := os.Stat(v.file); err != nil {
		t.Errorf("not saved after the error: %v", err)
	}
}

// TestUnfinishedFilesAreRemoved checks that an agent that is killed again and again does not fill the disk.
func TestUnfinishedFilesAreRemoved(t *testing.T) {
	t.Parallel()
	lib := t.TempDir()
	dir := filepath.Join(lib, "fairlead")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".new-snapshot-123", ".new-default.json-7", "default.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &config.Config{Node: "a", Network: simulated()}
	if _, err := newAgent(Options{Config: c, Store: newStore(t), Lib: lib, Run: filepath.Join(lib, "r"), Log: quietLog()}, &recorder{netip.MustParsePrefix("192.0.2.1/24")}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("there are %v (%v)", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "default.json")); err != nil {
		t.Error(err)
	}
}

// TestAddressTriggersReconcile checks that an address triggers a reconciliation only if the cluster has its network.
func TestAddressTriggersReconcile(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.0.0.0/8"}]}`))
	for key, want := range map[string]bool{
		"addresses/default/10.0.0.1": true, "addresses/whereabouts/10.0.0.1": false, "blocks/default/10.0.0.0-26": true,
		"nodes/a": true, "networks/other": true, "endpoints/a/c/eth0": false, "alive/a": false,
	} {
		if got := affectsObjects(s, key); got != want {
			t.Errorf("affectsObjects(%s) = %v", key, got)
		}
	}
}

// TestMachineIDAndLock checks that a machine keeps one ID, unless it is damaged, and runs one agent.
func TestMachineIDAndLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := machineID(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := machineID(filepath.Join(dir, "x"))
	if err != nil || a != b || len(a) < 20 {
		t.Errorf("IDs %q and %q: %v", a, b, err)
	}
	if other, err := machineID(filepath.Join(dir, "y")); err != nil || other == a {
		t.Errorf("another machine has %q, too: %v", other, err)
	}
	for _, damaged := range []string{"", "\x00\x00\x00\x00", "\xffabc", "a b"} {
		if err := os.WriteFile(filepath.Join(dir, "x", "id"), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := machineID(filepath.Join(dir, "x")); err != nil || len(id) < 20 {
			t.Errorf("with the damaged ID %q, the machine has %q: %v", damaged, id, err)
		}
	}
	unlock, err := lockHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	const advice = "run each agent in its own network namespace, with its own FAIRLEAD_RUN and FAIRLEAD_LIB"
	if _, err := lockHost(dir); err == nil || !strings.Contains(err.Error(), "another agent runs on this host") || !strings.HasSuffix(err.Error(), advice) {
		t.Errorf("a second agent: %v", err)
	}
	unlock()
	if unlock, err = lockHost(dir); err != nil {
		t.Errorf("after the first one's end: %v", err)
	} else {
		unlock()
	}
}

// newStore returns an empty store in a file.
func newStore(t *testing.T) store.Store {
	t.Helper()
	s, err := store.File(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestPublish checks that the publisher writes only changes, does not overwrite a live machine's document, and takes
// over a dead machine's.
func TestPublish(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := newStore(t)
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, quietLog())
	go func() { _ = source.Follow(ctx, s, cluster.Followed(), v) }()
	conf := &config.Config{Node: "a", Network: &cluster.Network{Name: "default", Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/8")}}}}
	make := func(id string) *publisher {
		own := session.New(s, session.Identity{Node: "a", Machine: id, Instance: "1"}, quietLog())
		p := &publisher{store: own.Store(), session: own, conf: conf, storeCache: v, log: quietLog(), status: newStatus("a"), wake: make(chan struct{}, 1), wanted: &wantedNetworks{}}
		p.setNode(&cluster.Node{Name: "a", ID: id}, true)
		return p
	}
	first := make("one")
	holding, let := context.WithCancel(ctx)
	if err := first.session.Start(holding); err != nil {
		t.Fatal(err)
	}
	early := make("one")
	early.store, early.session = first.store, first.session
	early.setNode(early.self, false) // computed before the first sync: it lacks what the store has of the node
	kerneltest.Until(t, func() bool { return early.once(holding) == nil })
	if _, err := s.Get(ctx, "nodes/a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an early document was published: %v", err)
	}
	kerneltest.Until(t, func() bool { return first.once(holding) == nil })
	kerneltest.Until(t, func() bool { return v.revisionOf("nodes/a") != 0 && v.revisionOf("networks/default") != 0 })
	_, revision, err := s.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.once(holding); err != nil {
		t.Error(err)
	}
	if _, again, _ := s.List(ctx, ""); again != revision {
		t.Errorf("nothing changed, but the store's revision went from %d to %d", revision, again)
	}
	second := make("two")
	if err := second.session.Start(ctx); err == nil || !strings.Contains(err.Error(), "another agent uses the node name a") {
		t.Errorf("a second machine of the name: %v", err)
	}
	if err := second.once(ctx); err == nil {
		t.Error("an agent without a session publishes")
	}
	let()
	go second.session.Run(ctx)
	kerneltest.Until(t, func() bool {
		id := ""
		v.read(func(s *cluster.Snapshot) { id = s.Nodes["a"].ID })
		return second.once(ctx) == nil && id == "two"
	})
}

// TestWriteCNIConfig checks that the file is written once, and again after a change.
func TestWriteCNIConfig(t *testing.T) {
	t.Parallel()
	file, lib := filepath.Join(t.TempDir(), "net.d", "10-pods.conflist"), t.TempDir()
	c := &config.Config{CNI: config.CNI{File: file, List: json.RawMessage(`{"name":"pods"}`)}}
	for range 2 {
		if err := writeCNIConfig(c, lib); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil || string(raw) != "{\n  \"name\": \"pods\"\n}\n" {
		t.Errorf("%v: %s", err, raw)
	}
	if err := writeCNIConfig(&config.Config{}, lib); err != nil {
		t.Errorf("without a file to write: %v", err)
	}
	chained := &config.Config{CNI: config.CNI{File: file, Fuse: true, List: json.RawMessage(`{"name":"pods","plugins":[{"type":"ptp"},{"type":"portmap"}]}`)}}
	if err := writeCNIConfig(chained, lib); err != nil {
		t.Fatal(err)
	}
	if raw, err = os.ReadFile(file); err != nil || strings.Count(string(raw), `"type": "`) != 3 || !strings.Contains(string(raw), `"type": "fairlead-chain"`) {
		t.Errorf("cni.fuse: %v: %s", err, raw)
	}
	chained.Policy.Enabled = true
	if err := writeCNIConfig(chained, lib); err != nil {
		t.Fatal(err)
	}
	if raw, err = os.ReadFile(file); err != nil || strings.Count(string(raw), `"type": "fairlead-policy"`) != 1 || strings.Index(string(raw), "portmap") > strings.Index(string(raw), "fairlead-policy") {
		t.Errorf("policy.enabled: %v: %s", err, raw)
	}
	c.PodNetworks.Enabled = true
	if err := writeCNIConfig(c, lib); err == nil || !strings.Contains(err.Error(), "cni.list: ") {
		t.Errorf("a list without plugins: %v", err)
	}
	c.CNI.List = json.RawMessage(`{"name":"pods","plugins":[{"type":"ptp"},{"type":"portmap","capabilities":{"portMappings":true}}]}`)
	if err := writeCNIConfig(c, lib); err != nil {
		t.Fatal(err)
	}
	raw, err = os.ReadFile(file)
	var got struct {
		Name    string
		Plugins []struct {
			Type         string
			Capabilities map[string]bool
			Plugins      []struct{ Type string }
		}
	}
	if err != nil || json.Unmarshal(raw, &got) != nil || got.Name != "pods" || len(got.Plugins) != 1 || got.Plugins[0].Type != "fairlead-pod" ||
		len(got.Plugins[0].Plugins) != 2 || !got.Plugins[0].Capabilities["portMappings"] || !got.Plugins[0].Capabilities["io.kubernetes.cri.pod-annotations"] {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestCNIFileRenamed checks that a list under an earlier name goes, so that a runtime does not prefer it, unless somebody
// else has changed it.
func TestCNIFileRenamed(t *testing.T) {
	t.Parallel()
	dir, lib := t.TempDir(), t.TempDir()
	write := func(name string) {
		t.Helper()
		c := &config.Config{CNI: config.CNI{File: filepath.Join(dir, name), List: json.RawMessage(`{"name":"pods"}`)}}
		if err := writeCNIConfig(c, lib); err != nil {
			t.Fatal(err)
		}
	}
	want := func(names ...string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		var have []string
		for _, e := range entries {
			have = append(have, e.Name())
		}
		if err != nil || !slices.Equal(have, names) {
			t.Errorf("%v, %v, want %v", have, err, names)
		}
	}
	write("10-a.conflist")
	write("20-b.conflist")
	want("20-b.conflist")
	if err := os.WriteFile(filepath.Join(dir, "20-b.conflist"), []byte(`{"name":"mine"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	write("30-c.conflist")
	want("20-b.conflist", "30-c.conflist")
	write("30-c.conflist")
	want("20-b.conflist", "30-c.conflist")
}
