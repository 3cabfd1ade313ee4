package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "handwritten")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// call starts the plugin as a runtime does and returns what it printed.
func call(bin, verb, container, conf string) (stdout string, err error) {
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_NETNS=/none", "CNI_IFNAME=eth0", "CNI_PATH=/none")
	cmd.Stdin = strings.NewReader(conf)
	out, err := cmd.Output()
	return string(out), err
}

func TestAddCheckDel(t *testing.T) {
	t.Parallel()
	bin, dir := build(t), t.TempDir()
	conf := `{"cniVersion":"1.1.0","name":"net","dir":"` + dir + `",
		"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"},{"address":"fd00::2/64"}]}}`
	for _, step := range []struct{ verb, container, files string }{
		{"ADD", "a", "net@a@eth0"},
		{"ADD", "b", "net@a@eth0 net@b@eth0"},
		{"CHECK", "a", "net@a@eth0 net@b@eth0"},
		{"STATUS", "", "net@a@eth0 net@b@eth0"},
		{"DEL", "a", "net@b@eth0"},
		{"DEL", "b", ""},
		{"DEL", "b", ""},
	} {
		out, err := call(bin, step.verb, step.container, conf)
		if err != nil {
			t.Fatalf("%s %s: %v %s", step.verb, step.container, err, out)
		}
		if step.verb == "ADD" && !strings.Contains(out, `"ips":[{"address":"10.1.0.2/24"},{"address":"fd00::2/64"}]`) {
			t.Errorf("ADD printed %s", out)
		}
		if got := files(t, dir); got != step.files {
			t.Errorf("after %s %s: %q, want %q", step.verb, step.container, got, step.files)
		}
	}
}

func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestInvalidConfiguration(t *testing.T) {
	t.Parallel()
	bin := build(t)
	for conf, want := range map[string]string{
		`{"cniVersion":"1.1.0","name":"net","dir":"here"}`:                     `dir = "here": want an absolute path`,
		`{"cniVersion":"1.1.0","name":"net","dir":5}`:                          `dir = 5: want a string`,
		`{"cniVersion":"1.1.0","name":"net","dir":"/nowhere"}`:                 "prevResult",
		`{"cniVersion":"1.1.0","name":"net","dir":"/nowhere","prevResult":{}}`: "no such file",
	} {
		out, err := call(bin, "ADD", "a", conf)
		var e cni.Error
		if err == nil || json.Unmarshal([]byte(out), &e) != nil || !strings.Contains(e.Msg, want) {
			t.Errorf("%s: %v %s", conf, err, out)
		}
	}
}

// A result that nobody reads is undone, and by hand the plugin explains itself.
func TestProcess(t *testing.T) {
	t.Parallel()
	bin, dir := build(t), t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=a", "CNI_NETNS=/none", "CNI_IFNAME=eth0", "CNI_PATH=/none")
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.1.0","name":"net","dir":"` + dir + `","prevResult":{}}`)
	cmd.Stdout = w
	err = cmd.Run()
	w.Close()
	if cmd.ProcessState.ExitCode() != 1 || files(t, dir) != "" {
		t.Errorf("closed stdout: %v, left %q", err, files(t, dir))
	}
	var stderr bytes.Buffer
	hand := exec.Command(bin)
	hand.Stderr = &stderr
	if err := hand.Run(); err != nil || !strings.HasPrefix(stderr.String(), "CNI handwritten plugin v1.0.0\n") {
		t.Errorf("by hand: %v %s", err, stderr.String())
	}
}
