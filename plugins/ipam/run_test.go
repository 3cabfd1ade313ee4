package ipam

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/skel"
)

// call is one call of our plugin or the reference plugin.
type call struct {
	verb, id, ifname, args, conf string
}

func (c call) env() map[string]string {
	ifname := c.ifname
	if ifname == "" {
		ifname = "eth0"
	}
	return map[string]string{"CNI_COMMAND": c.verb, "CNI_CONTAINERID": c.id, "CNI_IFNAME": ifname,
		"CNI_ARGS": c.args, "CNI_NETNS": "/run/netns/none", "CNI_PATH": "/opt/cni/bin"}
}

// runner runs a call and returns the exit code and the output.
type runner func(t testing.TB, c call) (code int, stdout string)

func ours(p skel.Plugin) runner {
	return func(t testing.TB, c call) (int, string) {
		t.Helper()
		env := c.env()
		var stdout bytes.Buffer
		code := skel.Run(context.Background(), p, func(k string) string { return env[k] },
			strings.NewReader(c.conf), &stdout, io.Discard)
		return code, stdout.String()
	}
}

func referenceOf(tb testing.TB, name string) runner {
	tb.Helper()
	path := reference.Plugin(tb, name)
	return func(t testing.TB, c call) (int, string) {
		t.Helper()
		cmd := exec.Command(path)
		for k, v := range c.env() {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		cmd.Stdin = strings.NewReader(c.conf)
		out, _ := cmd.Output()
		return cmd.ProcessState.ExitCode(), string(out)
	}
}

func mustRun(t testing.TB, run runner, c call) string {
	t.Helper()
	code, out := run(t, c)
	if code != 0 {
		t.Fatalf("%s %s: %s", c.verb, c.id, out)
	}
	return out
}

// message returns an error's code and msg.
func message(t testing.TB, stdout string) (uint, string) {
	t.Helper()
	var e struct {
		Code uint
		Msg  string
	}
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatalf("not an error: %v: %q", err, stdout)
	}
	return e.Code, e.Msg
}

func sameJSON(t testing.TB, ours, reference string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(ours), &a); err != nil {
		t.Fatalf("ours: %v: %q", err, ours)
	}
	if err := json.Unmarshal([]byte(reference), &b); err != nil {
		t.Fatalf("reference plugin: %v: %q", err, reference)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("results differ\nours:      %s\nreference: %s", ours, reference)
	}
}

// files returns all files below a directory with their modes and contents.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		info, _ := e.Info()
		got[e.Name()] = info.Mode().String() + " " + string(data)
	}
	return got
}
