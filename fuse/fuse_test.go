package fuse

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
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
	if same, err := Undo(parse(t, list)); err != nil || !reflect.DeepEqual(decode(t, same), decode(t, []byte(list))) {
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

func TestReplaceKeepsModeAndSymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.conflist"), filepath.Join(dir, "link.conflist")
	if err := os.WriteFile(target, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target.conflist", link); err != nil {
		t.Fatal(err)
	}
	if err := Replace(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(target)
	fi, err2 := os.Stat(target)
	if err != nil || err2 != nil || string(raw) != "new" || fi.Mode().Perm() != 0o640 {
		t.Errorf("the target has %q, %v, %v, %v", raw, fi.Mode(), err, err2)
	}
	if to, err := os.Readlink(link); to != "target.conflist" {
		t.Errorf("the link was replaced: %q, %v", to, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("files were left: %v", files)
	}
	if err := Replace(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("a file in a directory that does not exist was written")
	}
}

// TestReplaceKeepsDevices verifies that a pipe or a device stays: as root, /dev/stdout and /dev/null would become files for
// everybody. An error does not name the temporary file.
func TestReplaceKeepsDevices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "stdout")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("pipe", link)); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(pipe, os.O_RDWR, 0) // does not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, to := range []string{pipe, link} {
		raw := make([]byte, 3)
		if err := Replace(to, []byte("new")); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(to); err != nil || fi.Mode().Type() != os.ModeNamedPipe {
			t.Fatalf("%s was replaced: %v, %v", to, fi.Mode(), err)
		}
		if _, err := io.ReadFull(r, raw); err != nil || string(raw) != "new" {
			t.Errorf("%s: %q, %v", to, raw, err)
		}
	}
	if err := Replace(dir, nil); err == nil || err.Error() != "write "+dir+": is a directory" {
		t.Error(err)
	}
	if err := Replace(filepath.Join(dir, "none", "x"), nil); err == nil || strings.Contains(err.Error(), ".fuse-") {
		t.Error(err)
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
