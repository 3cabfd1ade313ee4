package fuse

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/libcni"
)

const list = `{
  "cniVersion": "1.1.0",
  "name": "n",
  "disableGC": true,
  "unknown": {"kept": [1, 2.50, null]},
  "plugins": [
    {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/16"}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}`

func parse(t *testing.T, raw string) *libcni.NetworkConfigList {
	t.Helper()
	l, err := libcni.ConfListFromBytes([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func decode(t *testing.T, raw []byte) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return v
}

func TestUndoRestoresTheList(t *testing.T) {
	t.Parallel()
	fused, err := Fuse(parse(t, list))
	if err != nil {
		t.Fatal(err)
	}
	conf := decode(t, fused)
	plugins := conf["plugins"].([]any)
	if len(plugins) != 1 || plugins[0].(map[string]any)["type"] != "fairlead-chain" {
		t.Fatalf("fused: %s", fused)
	}
	if caps := plugins[0].(map[string]any)["capabilities"]; !reflect.DeepEqual(caps, map[string]any{"portMappings": true}) {
		t.Errorf("the chain has the capabilities %v: a runtime would pass it no port mappings", caps)
	}
	if !strings.Contains(string(fused), "2.50") {
		t.Errorf("a number of an unknown key changed its form: %s", fused)
	}
	back, err := Undo(parse(t, string(fused)))
	if err != nil || !reflect.DeepEqual(decode(t, back), decode(t, []byte(list))) {
		t.Errorf("%v, got %s", err, back)
	}
	if same, err := Undo(parse(t, list)); err != nil || string(same) != list {
		t.Errorf("undo of a list that is not fused: %v, %s", err, same)
	}
}

func TestFuseRejectsAFusedList(t *testing.T) {
	t.Parallel()
	fused, err := Fuse(parse(t, list))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Fuse(parse(t, string(fused))); err == nil || !strings.Contains(err.Error(), "--undo restores it") {
		t.Errorf("got %v", err)
	}
}

func TestReadRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, want string }{
		"one plugin":  {"a.conf", `{"cniVersion": "1.1.0", "name": "n", "type": "bridge"}`, "configures one plugin, so there is nothing to fuse"},
		"no plugins":  {"a.conflist", `{"cniVersion": "1.1.0", "name": "n", "plugins": []}`, "plugins"},
		"not JSON":    {"a.conflist", `{"cniVersion": `, "a.conflist"},
		"a bad value": {"a.conflist", `{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "bridge", "mtu": "x"}]}`, "mtu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if l, err := Read(file, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
}

// TestUndoRejectsPod verifies that --undo does not take apart fairlead-pod, whose plugins cannot replace it.
func TestUndoRejectsPod(t *testing.T) {
	t.Parallel()
	list := parse(t, `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "fairlead-pod", "plugins": [{"type": "bridge"}]}]}`)
	if out, err := Undo(list); err == nil || !strings.Contains(err.Error(), "plugins[0].type") {
		t.Errorf("%s, %v", out, err)
	}
}
