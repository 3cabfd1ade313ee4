package crash

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// damages lists what a disk, a power cut, another version or an administrator can do to a file.
var damages = []struct {
	name string
	do   func([]byte) []byte
}{
	{"empty", func([]byte) []byte { return nil }},
	{"cut off", func(b []byte) []byte { return b[:len(b)/2] }},
	{"last byte lost", func(b []byte) []byte { return b[:max(len(b)-1, 0)] }},
	{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }},
	{"longer", func(b []byte) []byte { return append(b, "\x00garbage\n"...) }},
	{"a bit at the start", func(b []byte) []byte { return flip(b, 0) }},
	{"a bit at a third", func(b []byte) []byte { return flip(b, len(b)/3) }},
	{"a bit in the middle", func(b []byte) []byte { return flip(b, len(b)/2) }},
	{"a bit at the end", func(b []byte) []byte { return flip(b, len(b)-2) }},
	{"another version", otherVersion},
	{"gone", nil},
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	if at = max(at, 0); at < len(b) {
		b[at] ^= 0x10
	}
	return b
}

// otherVersion returns the file as another version would write it, or this version in another boot.
func otherVersion(b []byte) []byte {
	for _, r := range [][2]string{
		{`"boot":"`, `"boot":"0`}, {`"kind":"cniCacheV1"`, `"kind":"cniCacheV9"`}, {"fairipam2\n", "fairipam9\n"}, {`"objects":[`, `"objects":[{"kind":"new","object":{}},`},
	} {
		if bytes.Contains(b, []byte(r[0])) {
			return bytes.Replace(b, []byte(r[0]), []byte(r[1]), 1)
		}
	}
	return append([]byte("version 9\n"), b...)
}

// TestDamagedState damages every state file of an attachment, each in every way. DEL, or GC, succeeds, the next ADD
// succeeds, and at the end nothing is left.
//
// There are exceptions. A record that cannot be read may leave a network's emptied sets to its next DEL, and the
// previous value of a sysctl is lost. Without the record, GC does not know the container's namespace.
func TestDamagedState(t *testing.T) {
	for _, s := range scenes() {
		if !slices.Contains([]string{"fairlead-chain", "example/10-my-network", "flannel", "dhcp", "bridge/masquerade"}, s.name) {
			continue
		}
		s.conf = strings.Replace(s.conf, `, "sysctl": {"net.core.somaxconn": "77"}`, "", 1)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, s.needs...)
			m := newMachine(t, &s)
			m.must("ADD")
			list := m.stateFiles()
			m.must("DEL")
			if len(list) < 2 {
				t.Fatalf("files: %v", list)
			}
			for _, file := range list {
				if s.lacksGC && strings.Contains(file, "[0-9]*.*") {
					continue
				}
				for i, d := range damages {
					then := byDel
					// DEL cannot determine the owner of an address whose file is damaged.
					if (i%2 == 1 || strings.Contains(file, "[0-9]*.*")) && !s.lacksGC && !strings.HasPrefix(file, "run/attach/") {
						then = byGC
					}
					if err := m.damageAndRecover(file, d.do, then); err != nil {
						t.Errorf("%s: %s, then %s: %v", file, d.name, then, err)
						m = newMachine(t, &s)
					}
				}
			}
		})
	}
}

// stateFiles returns patterns of the files below the state directories. Patterns, because addresses differ between
// runs.
func (m *machine) stateFiles() (list []string) {
	for _, root := range stateDirs {
		_ = filepath.WalkDir(filepath.Join(m.Dir, root), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && e.Name() != "lock" {
				name := strings.TrimPrefix(path, m.Dir+"/")
				if dir, file := filepath.Split(name); strings.Trim(file, "0123456789.") == "" {
					name = dir + "[0-9]*.*"
				}
				list = append(list, name)
			}
			return nil
		})
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (m *machine) damageAndRecover(pattern string, do func([]byte) []byte, then recovery) error {
	result, err := m.run("ADD", "")
	if err != nil {
		return err
	}
	files, _ := filepath.Glob(filepath.Join(m.Dir, pattern))
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err == nil && do == nil {
			err = os.Remove(f)
		} else if err == nil {
			err = os.WriteFile(f, do(raw), 0o600)
		}
		if err != nil {
			return err
		}
	}
	if err := m.recover(then, result); err != nil {
		return err
	}
	if err := m.recover(byAdd, ""); err != nil {
		return err
	}
	return m.checkClean()
}
