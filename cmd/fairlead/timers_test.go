package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/systemdunit"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestTimers verifies the units of gc and repair with systemd.
func TestTimers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := filepath.Glob("../../contrib/systemd/fairlead-*")
	must(t, err)
	argv := []string{"verify", "--man=no"} // the man pages are in the package, not on this machine
	for _, f := range files {
		raw, err := os.ReadFile(f)
		must(t, err)
		argv = append(argv, write(t, dir, filepath.Base(f), strings.ReplaceAll(string(raw), "/usr/bin/fairlead", "/bin/true")))
	}
	if len(files) < 6 {
		t.Fatalf("units: %q", files)
	}
	if out, err := exec.Command("systemd-analyze", argv...).CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCapabilities verifies that the capabilities in the units of gc and repair suffice.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"gc", "repair"} {
		t.Run(unit, func(t *testing.T) { capable(t, unit) })
	}
}

func capable(t *testing.T, unit string) {
	t.Parallel()
	s := newSite(t, "web", "db")
	before := s.left()
	service := systemdunit.Read(t, "fairlead-"+unit)
	if unit == "gc" {
		s.sh("ip netns add gone")
		s.withCaps(`{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"udp"}]}`).ok("add", "n", "gone")
		s.end("gone")
	} else {
		s.sh(s.names("nft flush ruleset\nip link set VETH nomaster\nip link del IFB\nweb ip addr flush dev eth0 scope global\nweb sysctl -qw net.core.somaxconn=10"))
	}
	argv := slices.Concat(systemdunit.Setpriv(service.Capabilities()), []string{"--no-new-privs", "--", "fairlead"}, service.Args())
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", unit, err, out)
	}
	if d := kerneltest.Diff(before, s.left()); d != "" {
		t.Errorf("%s:\n%s", unit, d)
	}
	s.ok("check", "n", "web")
}
