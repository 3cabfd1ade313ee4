package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEarlierList checks which file in the directory of lists keeps a container runtime from using the agent's list.
func TestEarlierList(t *testing.T) {
	t.Parallel()
	const list, bridge = `{"name": "x", "plugins": [{"type": "calico"}]}`, `{"name": "x", "type": "bridge"}`
	for _, c := range []struct{ name, content, want string }{
		{"", "", ""},
		{"05-cilium.conflist", list, "05-cilium.conflist"},
		{"10-containerd-net.conf", bridge, "10-containerd-net.conf"},
		{"10-a.json", bridge, "10-a.json"},
		{"10-flannel.conflist", list, ""}, // it comes later
		{"00-multus.conf", `{"name": "m", "type": "multus-shim"}`, ""},
		{"00-x.conflist.bak", list, ""},
		{"00-damaged.conflist", `{"plugins"`, ""}, // the runtime skips it
		{"00-empty.conf", ``, ""},
	} {
		file := filepath.Join(t.TempDir(), "10-fairlead.conflist")
		if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.name != "" {
			if err := os.WriteFile(filepath.Join(filepath.Dir(file), c.name), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := earlierList(file)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want+", which comes before 10-fairlead.conflist: remove it") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := earlierList(filepath.Join(t.TempDir(), "none", "10-fairlead.conflist")); err != nil {
		t.Errorf("before the directory exists: %v", err)
	}
	s := newStatus("a")
	s.recordList(os.ErrExist)
	if err := s.NotReady(); !strings.Contains(err.Error(), os.ErrExist.Error()) {
		t.Errorf("the node is ready: %v", err)
	}
}
