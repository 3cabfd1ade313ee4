package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

// TestErrors verifies the messages and exit codes of common errors.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	write(t, dir, "1.conflist", `{"cniVersion": "1.0.0", "name": "one", "plugins": [{"type": "bridge"}]}`)
	write(t, dir, "2.conf", `{"cniVersion": "1.0.0", "name": "two", "type": "ptp"}`)
	service := filepath.Join(t.TempDir(), "service.yaml")
	write(t, filepath.Dir(service), "service.yaml", "kind: Service\n")
	policies, agent := t.TempDir(), filepath.Join(filepath.Dir(service), "agent.yaml")
	write(t, policies, "bad.yaml", "policy: [")
	write(t, filepath.Dir(agent), "agent.yaml", "policy: {enabled: true, directory: "+policies+"}\n")
	env := map[string]string{"NETCONFPATH": dir, "CNI_PATH": empty, "FAIRLEAD_RUN": empty}
	for _, c := range []struct {
		line string
		env  map[string]string
		code int
		want string
	}{
		{"fairlead ad one ns", nil, 2, "fairlead: there is no command \"ad\"\nDid you mean: fairlead add\n"},
		{"fairlead frobnicate", nil, 2, "fairlead: there is no command \"frobnicate\"\nType: fairlead help\n"},
		{"fairlead add", nil, 2, "fairlead: usage: fairlead add NETWORK NETNS [flags]\nType: fairlead add --help\n"},
		{"fairlead add one ns more", nil, 2, "fairlead: too many arguments, from \"more\" on; usage: fairlead add NETWORK NETNS [flags]\nType: fairlead add --help\n"},
		{"fairlead add one ns --zap", nil, 2, "fairlead: unknown flag: --zap\nType: fairlead add --help\n"},
		{"fairlead list what", nil, 2, "fairlead: too many arguments"},
		{"fairlead gc one --keep a/b --keep-none", nil, 2, "--keep and --keep-none contradict each other"},
		{"fairlead add nope ns", nil, 1, "fairlead: no net configuration with name \"nope\" in " + dir + "\nThere are: one, two\n"},
		{"fairlead add nope ns", map[string]string{"NETCONFPATH": empty}, 1, "Put the configuration of a network there, set NETCONFPATH, or name a file\n"},
		{"fairlead add one /nowhere", nil, 1, "there is no network namespace /nowhere\nCreate one: ip netns add NAME\n"},
		{"fairlead add one fairlead-nowhere", nil, 1, "there is no network namespace /run/netns/fairlead-nowhere\nCreate one: ip netns add fairlead-nowhere\n"},
		{"fairlead add one /proc/self/fd/0", nil, 1, "/proc/self/fd/0 is another file for every process: want a path like /run/netns/NAME"},
		{"fairlead del one /nowhere", nil, 1, "file does not exist\nSet CNI_PATH to the directories of your plugins\n"},
		{"fairlead del one /nowhere", map[string]string{"CNI_ARGS": "x"}, 1, `"x"`},
		{"fairlead del one /nowhere -i a/b", nil, 2, "a/b"},
		{"fairlead version nope", nil, 1, `failed to find plugin "nope"`},
		{"fairlead version ../x", nil, 1, "without a path"},
		{"fairlead plan one /nowhere", nil, 1, "there is no network namespace /nowhere\nCreate one: ip netns add NAME\n"},
		{"fairlead validate " + empty, nil, 1, "no net configurations found in " + empty},
		{"fairlead policy check -f /no/such.yaml", nil, 1, "fairlead: read the policies: open /no/such.yaml: no such file or directory\n"},
		{"fairlead del one ns", map[string]string{"FAIRLEAD_RUN": "/dev/null"}, 1, "fairlead: lock the attachment: open /dev/null/attach/one/"},
		{"fairlead pod setup web --pod /no/such.yaml", nil, 1, "fairlead: read the manifest: open /no/such.yaml: no such file or directory\n"},
		{"fairlead pod setup web --pod " + service, nil, 3, service + ": kind is \"Service\": want Pod\n"},
		{"fairlead pod setup web --publish 80/x", nil, 2, "--publish 80/x: want [[HOSTIP:]HOSTPORT:]PORT[/tcp|udp|sctp], like"},
		{"fairlead pod status web", nil, 1, "fairlead: pod web is not set up\nType: fairlead pod list\n"},
		{"fairlead pod detach web net1", nil, 1, "fairlead: pod web is not set up\nType: fairlead pod list\n"},
		{"fairlead dhcp-daemon status --socketpath /no/dhcp.sock", nil, 1,
			"fairlead: no DHCP daemon answers at /no/dhcp.sock: no such file or directory\nStart it: systemctl start fairlead-dhcp.socket"},
		{"fairlead policy explain --kernel-only shop/web 10.0.0.1 80", nil, 2, "\"shop/web\" is not an address, and the kernel knows no names of pods\nType: fairlead policy explain"},
		{"fairlead policy check --config " + agent, nil, 3, policies + "/bad.yaml: document 1: "},
		{"fairlead policy list --config " + agent, nil, 1, "are the files in " + policies + ", not in a store\nChange the files; to list their policies, type: fairlead policy check\n"},
		{"fairlead docker-plugin --socket=", nil, 2, "--socket is empty\nType: fairlead docker-plugin --help"},
	} {
		t.Run(c.line, func(t *testing.T) {
			with := map[string]string{}
			for _, m := range []map[string]string{env, c.env} {
				for k, v := range m {
					with[k] = v
				}
			}
			code, stdout, stderr := call(with, strings.Fields(c.line)...)
			if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
				t.Errorf("code %d, want %d; stdout %q, stderr\n%s\nwant\n%s", code, c.code, stdout, stderr, c.want)
			}
			jsonCode, _, stderr := call(with, append(strings.Fields(c.line), "--json")...)
			var e struct{ Error cni.Error }
			if err := json.Unmarshal([]byte(stderr), &e); c.code == 1 && (err != nil || e.Error.Msg == "" || jsonCode != code) {
				t.Errorf("with --json: code %d, %v: %s", jsonCode, err, stderr)
			}
		})
	}
}

// TestEmptyArgument verifies that an empty argument is an error: it is neither the directory of namespaces nor every
// container.
func TestEmptyArgument(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	write(t, dir, "1.conflist", `{"cniVersion": "1.0.0", "name": "one", "plugins": [{"type": "sh"}]}`)
	write(t, empty, "sh", "#!/bin/sh\nexit 0\n")
	must(t, os.Chmod(filepath.Join(empty, "sh"), 0o700))
	env := map[string]string{"NETCONFPATH": dir, "CNI_PATH": empty, "FAIRLEAD_RUN": empty, "FAIRLEAD_LIB": empty}
	for _, line := range []string{"del one ", "check one ", "plan one ", "doctor ", "pod status ", "add  web"} {
		code, stdout, stderr := call(env, append([]string{"fairlead"}, strings.Split(line, " ")...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, " is empty; usage: fairlead ") {
			t.Errorf("%q: code %d, %s%s", line, code, stdout, stderr)
		}
	}
}

// TestFullDisk verifies that a report which cannot be written is an error.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	for _, line := range []string{"fairlead help exit-codes", "fairlead list", "fairlead gc --all --dry-run"} {
		dir, errs := t.TempDir(), bytes.Buffer{}
		env := map[string]string{"NETCONFPATH": dir, "CNI_PATH": dir, "FAIRLEAD_RUN": dir, "FAIRLEAD_LIB": dir}
		a := &app{stdout: full, stderr: &errs, getenv: func(k string) string { return env[k] }}
		if code := run(t.Context(), a, strings.Fields(line)); code != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: code %d, %s", line, code, errs.String())
		}
	}
}

// TestJSONErrorOfFlags verifies that every form of the flag makes an error JSON, also after a flag that does not exist.
func TestJSONErrorOfFlags(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"--json", "-o json", "-ojson", "-o=json", "--output json", "--output=json"} {
		code, _, stderr := call(nil, append([]string{"fairlead", "list", "--zap"}, strings.Fields(form)...)...)
		if code != exitUsage || !json.Valid([]byte(stderr)) {
			t.Errorf("%s: exit code %d, %s", form, code, stderr)
		}
	}
}

// TestJSONFlag verifies the values of --json.
func TestJSONFlag(t *testing.T) {
	t.Parallel()
	env := map[string]string{"FAIRLEAD_RUN": t.TempDir()}
	for value, want := range map[string]string{"--json": "[]\n", "--json=true": "[]\n", "--json=false": "No attachments.", "--json=x": ""} {
		code, stdout, stderr := call(env, "fairlead", "list", value)
		if !strings.HasPrefix(stdout, want) || (code == exitUsage) != (value == "--json=x") || code != 0 && !strings.Contains(stderr, "--json x: want true or false") {
			t.Errorf("%s: code %d, %s%s", value, code, stdout, stderr)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{errors.New("x"), 1},
		{&usageError{"a", "b"}, 2},
		{fmt.Errorf("wrapped: %w", cni.Invalid(nil, "key", "bad")), 3},
		{cni.Errorf(cni.CodeTryAgainLater, "busy"), 11},
		{cni.Errorf(cni.CodePluginNotAvailable, "no"), 50},
		{fmt.Errorf("wrapped: %w", cni.Errorf(cni.CodeLimitedConnectivity, "no")), 51},
		{cni.Errorf(cni.CodeGeneric, "no"), 1},
		{silentError{7}, 7},
		{errors.Join(errInterrupted, cni.Errorf(cni.CodePluginNotAvailable, "no")), 130},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: got %d, want %d", c.err, got, c.code)
		}
		if !strings.Contains(exitHelp, fmt.Sprintf("  %-4d ", c.code)) && c.code != 7 {
			t.Errorf("help does not explain exit code %d", c.code)
		}
	}
}

// TestRelativeState verifies that the state cannot depend on the working directory.
func TestRelativeState(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"FAIRLEAD_RUN", "FAIRLEAD_LIB"} {
		if code, _, errs := call(map[string]string{name: "state"}, "fairlead", "list"); code != exitUsage || !strings.Contains(errs, name+"=state: want an absolute path") {
			t.Errorf("%s: exit code %d: %s", name, code, errs)
		}
	}
}

// TestRootAdvice verifies that a user without the permission is told to use sudo, once.
func TestRootAdvice(t *testing.T) {
	t.Parallel()
	denied := &os.PathError{Op: "open", Path: "/run/fairlead/attach", Err: syscall.EACCES}
	for _, c := range []struct {
		err  error
		uid  int
		want bool
	}{
		{denied, 1000, true},
		{fmt.Errorf("wrapped: %w", denied), 1000, true},
		{cni.Errorf(cni.CodeGeneric, "create a veth pair: operation not permitted"), 1000, true},
		{denied, 0, false},
		{errors.New("no such file"), 1000, false},
		{fmt.Errorf("%w\nThis needs root: run the same command with \"sudo -E\"", denied), 1000, false},
	} {
		if got := adviseRoot(c.err, c.uid); (got.Error() != c.err.Error()) != c.want || c.want && !strings.Contains(got.Error(), "needs root") {
			t.Errorf("user %d: %v", c.uid, got)
		}
	}
}

// TestCancelledCommandExitCode verifies that a command whose context is cancelled ends with 130.
func TestCancelledCommandExitCode(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b strings.Builder
	a := &app{stdout: &b, stderr: &b, getenv: func(string) string { return "" }}
	if code := run(ctx, a, []string{"fairlead", "validate", filepath.Join(t.TempDir(), "none", "x")}); code != 130 {
		t.Errorf("exit code %d: %s", code, &b)
	}
}

// TestHelp verifies that every command has a usage line and an example, within 130 columns.
func TestHelp(t *testing.T) {
	t.Parallel()
	a := newApp()
	for _, c := range a.root().Commands() {
		if c.Name() == "completion" || c.Name() == "help" || c.Hidden || !c.Runnable() {
			continue
		}
		code, out, stderr := call(nil, "fairlead", "help", c.Name())
		if code != 0 || stderr != "" || !strings.Contains(out, "Usage:\n  fairlead "+c.Name()) ||
			!strings.Contains(out, "Examples:\n") || !strings.Contains(out, "fairlead "+c.Name()) {
			t.Errorf("help %s: code %d\n%s%s", c.Name(), code, out, stderr)
		}
		for l := range strings.Lines(out) {
			if len(l) > 130 {
				t.Errorf("help %s has a line of %d columns: %s", c.Name(), len(l), l)
			}
		}
	}
	for topic, want := range map[string]string{"environment": "NETCONFPATH", "exit-codes": "130"} {
		if code, out, _ := call(nil, "fairlead", "help", topic); code != 0 || !strings.Contains(out, want) {
			t.Errorf("help %s: %s", topic, out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, _ := call(nil, "fairlead", "version")
	if code != 0 || !strings.HasPrefix(out, "fairlead "+cni.Version()+" (plugins "+cni.Release()+", go") || !strings.Contains(out, "0.1.0, 0.2.0") {
		t.Errorf("version: %d %s", code, out)
	}
	var v struct{ CNIVersions []string }
	_, out, _ = call(nil, "fairlead", "version", "--json")
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.CNIVersions) != len(cni.Versions()) {
		t.Errorf("version --json: %v %s", err, out)
	}
}
