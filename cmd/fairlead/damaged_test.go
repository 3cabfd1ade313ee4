package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// record returns the path of the record of a container's attachment to the network n.
func (s *site) record(container string) string {
	s.Helper()
	files, _ := filepath.Glob("/run/fairlead/attach/n/" + containerID("/run/netns/"+container) + ",*.json")
	if len(files) != 1 {
		s.Fatalf("records of %s: %v", container, files)
	}
	return files[0]
}

// TestDamagedRecord damages the record of an attachment that works. No command that only looks may remove the file, and
// gc must keep the interface. When the container is gone, gc removes the file.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	file := s.record("web")
	write(t, filepath.Dir(file), filepath.Base(file), "{")
	for _, argv := range [][]string{{"list"}, {"repair"}, {"check", "n", "web"}, {"gc", "--all"}} {
		if _, _, errs := s.fairlead(argv...); argv[0] != "check" && argv[0] != "gc" && !strings.Contains(errs, file) {
			t.Errorf("%v does not name the file: %s", argv, errs)
		}
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("after %v: %v", argv, err)
		}
	}
	s.sh("web ip link show eth0")
	code, d := s.doctor()
	if code != exitWrong || len(d.Findings) != 1 || d.Findings[0].Name != "record-damaged" {
		t.Errorf("doctor: %d, %+v", code, d)
	}
	s.sh("ip netns del web")
	s.settled(s.leftNow)
	s.ok("gc", "--all")
	if _, err := os.Stat(file); err == nil {
		t.Error("gc keeps the record of a container that is gone")
	}
}

// TestUnusableStateDirectory verifies that doctor and list report a state directory that no ADD can use.
func TestUnusableStateDirectory(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a file":    "rm -rf /run/fairlead\ntouch /run/fairlead",
		"read-only": "mount --bind /run/fairlead /run/fairlead\nmount -o remount,bind,ro /run/fairlead",
	} {
		s := newSite(t)
		s.sh("mkdir -p /run/fairlead\n" + script)
		code, d := s.doctor()
		if code != exitWrong || len(d.Findings) != 1 || d.Findings[0].Name != "state-directory-unusable" {
			t.Errorf("%s: %d, %+v", name, code, d)
		}
	}
}

// TestWarningOnce verifies that a command prints a warning about the cache once, although it reads the cache twice.
func TestWarningOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	write(t, "/var/lib/cni/results", "n-"+containerID("/run/netns/web")+"-eth0", "{")
	for _, argv := range [][]string{{"check", "n", "web"}, {"doctor"}, {"del", "n", "web"}} {
		if _, _, errs := s.fairlead(argv...); strings.Count(errs, "fairlead: warning: ") != 1 {
			t.Errorf("%v: %s", argv, errs)
		}
	}
}
