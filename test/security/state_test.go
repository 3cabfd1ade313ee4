package security

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStateModes checks that only root can write the plugins' files and directories, whatever the umask, and that only
// root can read below /run/fairlead.
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
			if records := m.checkModes(t, existing); records == 0 && c.plugin == "bridge" {
				t.Error("ADD wrote no record")
			}
			m.must("CHECK", c.plugin, "a", withPrevResult(conf, result))
			m.must("DEL", c.plugin, "a", conf)
			m.checkModes(t, existing)
		})
	}
}

// checkModes checks all files and directories, and returns the number of files below the directory of runtime state.
func (m *machine) checkModes(t *testing.T, skip map[string]bool) (records int) {
	t.Helper()
	for _, f := range m.files() {
		st, err := os.Lstat(f)
		if err != nil || skip[f] || st.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		mode := st.Mode().Perm()
		name := strings.TrimPrefix(f, m.Dir)
		if mode&0o022 != 0 {
			t.Errorf("%s: mode %o: others may write it", name, mode)
		}
		if !strings.HasPrefix(name, "/run/") || st.IsDir() {
			continue
		}
		if records++; mode&0o044 != 0 {
			t.Errorf("%s: mode %o: others may read it", name, mode)
		}
	}
	return records
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
			victim := filepath.Join(m.Dir, "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(m.Dir, at)
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
