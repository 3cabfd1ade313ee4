package podstate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/kernel"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newDir(t *testing.T) Dir { return Open(local.Open(t.TempDir(), t.TempDir())) }

func TestDefinitions(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	if list, err := d.Definitions(); err != nil || len(list) != 0 {
		t.Errorf("an empty directory: %v, %v", list, err)
	}
	want := Definition{Namespace: "shop", Name: "lan.1", Config: `{"type": "x"}`, Resource: "example.com/nic"}
	must(t, d.WriteDefinition(want))
	path, err := d.definition("shop", "lan.1")
	must(t, err)
	before, err := os.Stat(path)
	must(t, err)
	must(t, d.WriteDefinition(want))
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("an unchanged definition was written again: %v", err)
	}
	must(t, d.WriteDefinition(Definition{Namespace: "data", Name: "back"}))
	want.Version = version
	if got, err := d.Definition("shop", "lan.1"); err != nil || *got != want {
		t.Errorf("%+v, %v", got, err)
	}
	list, err := d.Definitions()
	if err != nil || !slices.Equal(list, []DefinitionArgs{{"data", "back"}, {"shop", "lan.1"}}) {
		t.Errorf("%v, %v", list, err)
	}
	for range 2 {
		must(t, d.RemoveDefinition("shop", "lan.1"))
	}
	if _, err := d.Definition("shop", "lan.1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed definition: %v", err)
	}
	if _, err := os.Stat(d.definitions("shop")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of an empty namespace: %v", err)
	}
	for _, name := range []string{"../x", "", "a/b", ".", ".."} {
		if _, err := d.Definition("shop", name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the name %q: %v", name, err)
		}
		if d.WriteDefinition(Definition{Namespace: name, Name: "x"}) == nil {
			t.Errorf("the namespace %q is accepted", name)
		}
	}
}

// TestLongDefinitionNames checks names of up to 253 bytes, as Kubernetes allows them, that differ only at their end.
func TestLongDefinitionNames(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	var want []DefinitionArgs
	for _, length := range []int{199, 200, 201, 235, 250, 253} {
		for _, end := range []string{"a", "b"} {
			name := strings.Repeat("n", length-1) + end
			must(t, d.WriteDefinition(Definition{Namespace: "shop", Name: name, Config: name}))
			want = append(want, DefinitionArgs{"shop", name})
		}
	}
	for _, w := range want {
		if got, err := d.Definition(w.Namespace, w.Name); err != nil || got.Name != w.Name || got.Config != w.Name {
			t.Errorf("%d bytes: %+v, %v", len(w.Name), got, err)
		}
	}
	list, err := d.Definitions()
	sort := func(a, b DefinitionArgs) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(list, sort)
	slices.SortFunc(want, sort)
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%v, %v", list, err)
	}
	path, err := d.definition("shop", want[0].Name+strings.Repeat("x", 30))
	must(t, err)
	must(t, os.WriteFile(path, []byte("{"), 0o600)) // not readable
	list, err = d.Definitions()
	must(t, err)
	for _, x := range list {
		must(t, d.RemoveDefinition(x.Namespace, x.Name))
	}
	if list, err := d.Definitions(); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestPods(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	p := &Pod{ContainerID: "c1", IfName: "eth0", Network: "pods", Attached: true, Attachments: []Attachment{{Name: "pods", IfName: "eth0", Default: true, Config: json.RawMessage(`{}`)}}}
	must(t, d.WritePod(p))
	if got, err := d.Pod("c1", "eth0"); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(d.pod("c1", "eth0")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file for root only", info, err)
	}
	if keys, err := d.Pods(); err != nil || !slices.Equal(keys, []Key{{"c1", "eth0"}}) {
		t.Errorf("%v, %v", keys, err)
	}
	must(t, os.Rename(d.pod("c1", "eth0"), d.pod("c2", "eth0")))
	if _, err := d.Pod("c2", "eth0"); err == nil || !strings.Contains(err.Error(), "it describes another container, c1") {
		t.Errorf("a renamed file: %v", err)
	}
	for text, want := range map[string]string{"": "unexpected end", "{": "unexpected end", `{"version": 2}`: "its version is 2: this program reads version 1", `{"version": 1, "uptime": "x"}`: "cannot unmarshal"} {
		must(t, os.WriteFile(d.pod("c3", "eth0"), []byte(text), 0o600))
		if _, err := d.Pod("c3", "eth0"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), d.pod("c3", "eth0")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for range 2 {
		must(t, d.RemovePod("c3", "eth0"))
	}
}

// TestStamp checks that the stamp changes with each write.
func TestStamp(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	if stamp, _ := d.Stamp(); stamp != "" {
		t.Errorf("without a directory: %s", stamp)
	}
	must(t, d.WritePod(&Pod{ContainerID: "a", IfName: "eth0"}))
	past := func() string {
		info, err := os.Stat(d.pods())
		must(t, err)
		must(t, os.Chtimes(d.pods(), info.ModTime().Add(-1e9), info.ModTime().Add(-1e9))) // the clock of files is coarse
		stamp, _ := d.Stamp()
		return stamp
	}
	for name, change := range map[string]func() error{
		"a new pod":   func() error { return d.WritePod(&Pod{ContainerID: "b", IfName: "eth0"}) },
		"a write":     func() error { return d.WritePod(&Pod{ContainerID: "a", IfName: "eth0"}) },
		"a pod ended": func() error { return d.RemovePod("a", "eth0") },
	} {
		before := past()
		must(t, change())
		if after, _ := d.Stamp(); after == before {
			t.Errorf("%s: the stamp is still %s", name, before)
		}
	}
}

// TestLock checks that one caller at a time has a pod, although each removes the lock file.
func TestLock(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	k := Key{"c1", "eth0"}
	var all sync.WaitGroup
	var held atomic.Int32 // a race detector does not know flock(2)
	for range 8 {
		all.Go(func() {
			for range 50 {
				unlock, err := d.Lock(t.Context(), k)
				if err != nil {
					t.Error(err)
					return
				}
				if n := held.Add(1); n != 1 {
					t.Errorf("%d callers have the pod", n)
				}
				held.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	unlock, err := d.Lock(t.Context(), k)
	must(t, err)
	if _, err := d.TryLock(k); !errors.Is(err, ErrBusy) {
		t.Errorf("a pod in use: %v", err)
	}
	other, err := d.TryLock(Key{"c1", "net1"})
	must(t, err)
	other()
	unlock()
	again, err := d.TryLock(k)
	must(t, err)
	again()
	if left, _ := filepath.Glob(filepath.Join(d.pods(), "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestEndpointDamagedByPowerFailure checks that a damaged file of an earlier boot is treated as missing and can be
// removed. A damaged file of this boot is an error.
func TestEndpointDamagedByPowerFailure(t *testing.T) {
	t.Parallel()
	d, k := newDir(t), Key{"c", "eth0"}
	must(t, d.WriteEndpoint(&Endpoint{ContainerID: "c", IfName: "eth0"}))
	must(t, os.Truncate(d.endpoint(k), 0))
	if _, err := d.Endpoint(k); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged file of this boot: %v", err)
	}
	must(t, d.RemoveEndpointOfEarlierBoot(k))
	if list, err := d.Endpoints(); err != nil || len(list) != 1 {
		t.Errorf("the file of this boot: %v, %v", list, err)
	}
	before := time.Now().Add(-kernel.Uptime() - time.Hour)
	must(t, os.Chtimes(d.endpoint(k), before, before))
	if _, err := d.Endpoint(k); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged file of an earlier boot: %v", err)
	}
	must(t, d.RemoveEndpointOfEarlierBoot(k))
	if list, err := d.Endpoints(); err != nil || len(list) != 0 {
		t.Errorf("the file of an earlier boot: %v, %v", list, err)
	}
}
