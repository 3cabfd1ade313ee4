package security

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestNetnsPaths covers invalid paths in CNI_NETNS. The plugin checks the file first. It does not block on it, and it
// does not take the host's namespace for a container's.
func TestNetnsPaths(t *testing.T) {
	conf := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`
	for name, tt := range map[string]struct{ path, want string }{
		"a FIFO":               {"$WORK/fifo", "not a network namespace"},
		"a regular file":       {"$WORK/file", "not a network namespace"},
		"a directory":          {"$WORK", "not a network namespace"},
		"missing":              {"$WORK/nothing", "the network namespace is gone"},
		"a device":             {"/dev/zero", "not a network namespace"},
		"a mount namespace":    {"/proc/self/ns/mnt", "is not a network namespace (it is a namespace of another type)"},
		"a link to a mount":    {"$WORK/mnt", "is not a network namespace (it is a namespace of another type)"},
		"the host's netns":     {"/proc/self/ns/net", "is the network namespace of the plugin itself"},
		"a link to the host's": {"$WORK/host", "is the network namespace of the plugin itself"},
		"a link to itself":     {"$WORK/loop", "too many levels of symbolic links"},
		"a link to a netns":    {"$WORK/good", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "a")
			link := func(to, name string) {
				if err := os.Symlink(to, filepath.Join(m.Dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			link("/proc/self/ns/mnt", "mnt")
			link("/proc/self/ns/net", "host")
			link("loop", "loop")
			link(m.Netns["a"], "good")
			if err := os.WriteFile(m.Dir+"/file", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(m.Dir+"/fifo", 0o600); err != nil {
				t.Fatal(err)
			}
			before := m.dump()
			env := "CNI_NETNS=" + strings.ReplaceAll(tt.path, "$WORK", m.Dir)
			start := time.Now()
			out, err := m.run("ADD", "bridge", "a", conf, env)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("ADD: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(out, tt.want)):
				t.Errorf("ADD printed %s, want %s", out, tt.want)
			}
			// DEL succeeds with any path, because the namespace may be gone by then.
			if out, err := m.run("DEL", "bridge", "a", conf, env); err != nil {
				t.Errorf("DEL: %s", out)
			}
			if after := m.dump(); after != before {
				t.Errorf("the state is\n%s\nwant\n%s", after, before)
			}
			if elapsed := time.Since(start); elapsed > kerneltest.Slow(30*time.Second) {
				t.Errorf("took %v", elapsed)
			}
		})
	}
}
