package security

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStateModes checks that only root can write the plugins' files, whatever the umask, and that only root can read
// below /run/fairlead.
func TestStateModes(t *testing.T) {
	for _, c := range pluginCases() {
		t.Run(c.plugin, func(t *testing.T) {
			t.Parallel()
			m := c.prepare(t)
			m.wrap = []string{"sh", "-c", `umask 0; exec "$0"`}
			existing := map[string]bool{}
			for _, f := range m.files() {
				existing[f] = true // created by the test
			}
			conf := c.text(m)
			result := m.must("ADD", c.plugin, "a", conf)
			m.checkModes(t, existing)
			m.must("CHECK", c.plugin, "a", withPrevResult(conf, result))
			m.must("DEL", c.plugin, "a", conf)
			m.checkModes(t, existing)
		})
	}
}

func (m *machine) checkModes(t *testing.T, skip map[string]bool) {
	t.Helper()
	for _, f := range m.files() {
		st, err := os.Lstat(f)
		if err != nil || skip[f] || st.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		mode := st.Mode().Perm()
		name := strings.TrimPrefix(f, m.dir)
		if mode&0o022 != 0 {
			t.Errorf("%s: mode %o: others may write it", name, mode)
		}
		if strings.HasPrefix(name, "/run/") && !st.IsDir() && mode&0o044 != 0 {
			t.Errorf("%s: mode %o: others may read it", name, mode)
		}
	}
}

// TestPlantedLinks puts symbolic links at the paths of the next state files. The links' targets must not change.
func TestPlantedLinks(t *testing.T) {
	conf := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipMasq": true, $IPAM}`
	for _, at := range []string{
		"ipam/n/10.1.0.2", "ipam/n/fd01::2", "ipam/n/last_reserved_ip.0", "ipam/n/lock",
		"run/attach/n/a,eth0.json", "run/attach/n/a,eth0.json~", "run/attach/n/.lock",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "a", "b")
			m.must("ADD", "bridge", "b", conf) // creates the directories
			m.must("DEL", "bridge", "b", conf)
			victim := filepath.Join(m.dir, "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(m.dir, at)
			_ = os.Remove(link)
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(victim, link); err != nil {
				t.Fatal(err)
			}
			_, _ = m.run("ADD", "bridge", "a", conf) // it may fail
			_, _ = m.run("CHECK", "bridge", "a", conf)
			_, _ = m.run("DEL", "bridge", "a", conf)
			if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
				t.Errorf("the link's target is now %q, %v", got, err)
			}
		})
	}
}

// TestStateOwnership checks that all state files belong to the plugin's user, and that nobody else can write the
// directories of the records.
func TestStateOwnership(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a")
	conf := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`
	m.must("ADD", "bridge", "a", conf)
	for _, f := range m.files() {
		st, err := os.Lstat(f)
		if err != nil {
			t.Fatal(err)
		}
		if owner := st.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
			t.Errorf("%s belongs to %d", f, owner)
		}
	}
	for _, dir := range []string{"run", "run/attach", "run/attach/n"} {
		st, err := os.Stat(filepath.Join(m.dir, dir))
		if err != nil || st.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	m.must("DEL", "bridge", "a", conf)
}
