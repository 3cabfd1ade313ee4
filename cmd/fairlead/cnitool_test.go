package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// side is one of two programs that are compared.
type side struct {
	program string
	env     []string
}

type outcome struct {
	code        int
	out, errOut string
}

func (s side) run(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(s.program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(append(os.Environ(), s.env...), env...), &out, &errOut
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// sides returns the reference cnitool and our cnitool, with the same networks and plugins.
func sides(t *testing.T, program string) (reference, ours side) {
	dir := t.TempDir()
	write(t, dir, "10-list.conflist", `{"cniVersion": "1.1.0", "name": "list", "plugins": [
		{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipam": {"type": "static",
		 "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]}`)
	write(t, dir, "20-old.conf", `{"cniVersion": "0.3.1", "name": "old", "type": "ptp", "dns": {"nameservers": ["192.0.2.1"]},
		"ipam": {"type": "static", "addresses": [{"address": "10.2.0.5/24", "gateway": "10.2.0.1"}, {"address": "fd02::5/64", "gateway": "fd02::1"}], "routes": [{"dst": "0.0.0.0/0"}]}}`)
	write(t, dir, "30-oldest.conf", `{"cniVersion": "0.2.0", "name": "oldest", "type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.3.0.5/24", "gateway": "10.3.0.1"}]}}`)
	write(t, dir, "40-missing.conflist", `{"cniVersion": "1.1.0", "name": "missing", "plugins": [{"type": "nowhere"}]}`)
	write(t, dir, "50-bad.conflist", `{"cniVersion": "1.1.0", "name": "bad", "plugins": [{"type": "bridge", "vlan": 5000}]}`)
	ours.program = filepath.Join(t.TempDir(), "cnitool")
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, ours.program))
	bin := t.TempDir()
	for _, p := range []string{"bridge", "ptp", "portmap", "static"} {
		must(t, os.Symlink(self, filepath.Join(bin, p)))
	}
	ours.env = []string{"NETCONFPATH=" + dir, "CNI_PATH=" + bin}
	return side{program, ours.env}, ours
}

// TestCnitool runs both programs on one host in turn. Each checks and removes what the other added, and both print the
// same.
func TestCnitool(t *testing.T) {
	t.Parallel()
	program := reference.Cnitool(t)
	for _, c := range []struct {
		name, network string
		env, flags    []string
		check         bool // the version has CHECK
	}{
		{"a list", "list", nil, nil, true},
		{"arguments", "list", []string{"CNI_IFNAME=net7", "CNI_ARGS=IgnoreUnknown=1;K=V",
			`CAP_ARGS={"portMappings":[{"hostPort":80,"containerPort":80,"protocol":"tcp"}]}`}, nil, true},
		{"one plugin, both families", "old", nil, nil, false},
		{"before lists of addresses", "oldest", nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host(t)
			reference, ours := sides(t, program)
			kerneltest.Run(t, "ip", "netns", "add", "a")
			same := func(verb string, first, second side) outcome {
				t.Helper()
				got := first.run(t, c.env, verb, c.network, "/run/x/../netns/a")
				if again := second.run(t, c.env, "del", c.network, "/run/netns/a"); again.code != 0 {
					t.Fatalf("del by the other: %+v", again)
				}
				return got
			}
			want, got := same("add", reference, ours), same("add", ours, reference)
			if want.code != 0 || got != want {
				t.Errorf("add: got %+v, want %+v", got, want)
			}
			for _, v := range []string{"check", "status", "gc", "del"} {
				ours.run(t, c.env, "add", c.network, "/run/netns/a")
				want := reference.run(t, c.env, v, c.network, "/run/netns/a")
				ours.run(t, c.env, "del", c.network, "/run/netns/a")
				reference.run(t, c.env, "add", c.network, "/run/netns/a")
				got := ours.run(t, c.env, v, c.network, "/run/netns/a")
				if want.code != 0 { // the reference prints the error, its usage, and the error again
					want.errOut = lastLine(want.errOut)
				}
				if got != want || c.check && got.code != 0 {
					t.Errorf("%s: got %+v, want %+v", v, got, want)
				}
				ours.run(t, c.env, "del", c.network, "/run/netns/a")
			}
			if left := kerneltest.Run(t, "ip", "-br", "link", "show", "type", "veth"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

func lastLine(s string) string {
	s = strings.TrimSuffix(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:] + "\n"
}

// TestCnitoolHelp checks that both programs print their usage without arguments and if asked.
func TestCnitoolHelp(t *testing.T) {
	t.Parallel()
	reference, ours := sides(t, reference.Cnitool(t))
	for _, args := range [][]string{nil, {"help"}, {"-h"}, {"--help"}, {"add", "--help"}} {
		for _, s := range []side{reference, ours} {
			got := s.run(t, nil, args...)
			if got.code != 0 || got.errOut != "" || !strings.Contains(got.out, "cnitool") {
				t.Errorf("%s %q: got %+v, want the usage", s.program, args, got)
			}
		}
	}
}

// TestCnitoolErrors compares exit codes and streams, and the message where both programs print the same.
func TestCnitoolErrors(t *testing.T) {
	t.Parallel()
	program := reference.Cnitool(t)
	host(t)
	reference, ours := sides(t, program)
	kerneltest.Run(t, "ip", "netns", "add", "a")
	for _, c := range []struct {
		args  []string
		env   []string
		words string // that both print
		ours  string // what our cnitool prints instead
	}{
		{[]string{"add", "list"}, nil, "<netns>", ""},
		{[]string{"nothing", "list", "/run/netns/a"}, nil, "nothing", ""},
		{[]string{"-i"}, nil, "cnitool", ""},
		{[]string{"add", "none", "/run/netns/a"}, nil, `no net configuration with name "none" in `, ""},
		{[]string{"add", "list", "/run/netns/none"}, nil, "/run/netns/none", ""},
		{[]string{"add", "missing", "/run/netns/a"}, nil, `failed to find plugin "nowhere" in path [`, ""},
		{[]string{"check", "old", "/run/netns/a"}, nil, `configuration version "0.3.1" does not support the CHECK command`, ""},
		{[]string{"add", "bad", "/run/netns/a"}, nil, "vlan", ""},
		{[]string{"add", "list", "/run/netns/a"}, []string{"CAP_ARGS={"}, "unexpected end of JSON input", "the text ends too early"},
		{[]string{"add", "list", "/run/netns/a"}, []string{"CNI_ARGS=x"}, `"x"`, ""},
		{[]string{"add", "list", "/run/netns/a"}, []string{"CNI_IFNAME=a-name-that-is-too-long"}, "interface name is too long", ""},
	} {
		for i, s := range []side{reference, ours} {
			got := s.run(t, c.env, c.args...)
			if c.ours != "" && i == 1 {
				c.words = c.ours
			}
			if got.code != 1 || got.out != "" || !strings.Contains(got.errOut, c.words) {
				t.Errorf("%s %q %q: got %+v, want %q", s.program, c.env, c.args, got, c.words)
			}
		}
	}
}

// TestCnitoolShowsStderr compares what both programs do with the messages of a plugin that succeeds.
func TestCnitoolShowsStderr(t *testing.T) {
	t.Parallel()
	program := reference.Cnitool(t)
	host(t)
	reference, ours := sides(t, program)
	dir, bin := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "talk"), []byte("#!/bin/sh\necho about $CNI_COMMAND >&2\necho '{\"cniVersion\": \"1.0.0\"}'\n"), 0o755))
	write(t, dir, "talk.conflist", `{"cniVersion": "1.0.0", "name": "talk", "plugins": [{"type": "talk"}]}`)
	env := []string{"NETCONFPATH=" + dir, "CNI_PATH=" + bin}
	for _, verb := range []string{"add", "del"} {
		want, got := reference.run(t, env, verb, "talk", "/run/netns/a"), ours.run(t, env, verb, "talk", "/run/netns/a")
		if got != want || got.errOut != "about "+strings.ToUpper(verb)+"\n" {
			t.Errorf("%s: got %+v, want %+v", verb, got, want)
		}
	}
}

// TestCnitoolIfName uses the flag -i of newer versions of cnitool.
func TestCnitoolIfName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   string
		rest   string
		ifName string
		bad    bool
	}{
		{"add n ns", "add n ns", "", false},
		{"-i net1 add n ns", "add n ns", "net1", false},
		{"add -i=net1 n ns", "add n ns", "net1", false},
		{"add n ns --ifname net1", "add n ns", "net1", false},
		{"add n ns -i", "", "", true},
	} {
		rest, ifName, err := cutIfName(strings.Fields(c.args))
		if got := strings.Join(rest, " "); got != c.rest || ifName != c.ifName || (err != nil) != c.bad {
			t.Errorf("%q: got %q, %q, %v", c.args, got, ifName, err)
		}
	}
	host(t)
	_, ours := sides(t, "")
	kerneltest.Run(t, "ip", "netns", "add", "a")
	if got := ours.run(t, nil, "-i", "net5", "add", "list", "/run/netns/a"); got.code != 0 || !strings.Contains(got.out, `"name": "net5"`) {
		t.Errorf("add with -i: %+v", got)
	}
	if got := ours.run(t, nil, "zap", "list", "/run/netns/a"); got.code != 1 || !strings.Contains(got.errOut, "no such command: zap") {
		t.Errorf("an unknown command: %+v", got)
	}
}

// TestContainerID compares the ID with cnitool's ID of a path.
func TestContainerID(t *testing.T) {
	t.Parallel()
	if got, want := containerID("/var/run/netns/testing"), "cnitool-77383ca0a0715733ca6f"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestDelWithoutConfiguration verifies that del removes everything that add created, also if the file of the network is gone
// or broken. Without the cache of results it uses the record.
func TestDelWithoutConfiguration(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *site){
		"gone":            func(s *site) { s.sh("rm -r " + s.confDir()) },
		"broken":          func(s *site) { write(t, s.confDir(), "n.conflist", "{") },
		"gone, and cache": func(s *site) { s.sh("rm -r " + s.confDir() + " /var/lib/cni/results") },
	} {
		s := newSite(t)
		s.sh("ip netns add web")
		s.ok("add", "n", "web")
		s.ok("del", "n", "web")
		clean := s.left() // with the shared objects
		s.ok("add", "n", "web")
		lose(s)
		s.ok("del", "n", "web")
		if left := s.left(); left != clean {
			t.Errorf("%s: left\n%s\nwant\n%s", name, left, clean)
		}
		s.sh("ip netns del web\nip link del cni0")
	}
}

// TestDelWithChangedConfiguration verifies that del removes everything that add created, also if the network's
// configuration lacks plugins and addresses of then.
func TestDelWithChangedConfiguration(t *testing.T) {
	t.Parallel()
	for _, plugins := range []string{
		`{"type": "loopback"}`,
		`{"type": "bridge", "bridge": "other0", "ipam": {"type": "host-local", "subnet": "10.7.0.0/24", "dataDir": "/run/other"}}`,
	} {
		s := newSite(t)
		s.sh("ip netns add web")
		s.ok("add", "n", "web")
		s.ok("del", "n", "web")
		clean := s.left() // with the shared objects
		s.ok("add", "n", "web")
		write(t, s.confDir(), "n.conflist", `{"cniVersion": "1.1.0", "name": "n", "plugins": [`+plugins+`]}`)
		s.ok("del", "n", "web")
		if left := s.left(); left != clean {
			t.Errorf("%s: left\n%s\nwant\n%s", plugins, left, clean)
		}
		s.sh("ip netns del web\nip link del cni0")
	}
}
