package invoke_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// script writes a shell script as a plugin and returns its path.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func exec(t *testing.T, ctx context.Context, body string, environ ...string) (string, error) {
	t.Helper()
	out, err := (&invoke.RawExec{}).ExecPlugin(ctx, script(t, body), []byte("input"), append(environ, "PATH="+os.Getenv("PATH")))
	return string(out), err
}

func TestFindInPath(t *testing.T) {
	t.Parallel()
	plugin := script(t, "")
	empty, dir := t.TempDir(), filepath.Dir(plugin)
	if err := os.Mkdir(filepath.Join(empty, "plugin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := invoke.FindInPath("plugin", []string{"/nonexistent", empty, dir}); got != plugin || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	_, err := invoke.FindInPath("other", []string{empty, dir})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "../plugin", plugin, ".."} {
		if got, err := invoke.FindInPath(bad, []string{dir}); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: got %s, %v", bad, got, err)
		}
	}
	if _, err := invoke.FindInPath("plugin", nil); err == nil || !strings.Contains(err.Error(), "CNI_PATH") {
		t.Errorf("no directories: %v", err)
	}
}

// TestPluginInTheCurrentDirectory verifies that a program of the same name on PATH does not run instead.
func TestPluginInTheCurrentDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sort"), []byte("#!/bin/sh\necho here\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	path, err := invoke.FindInPath("sort", []string{"", "."})
	if err != nil {
		t.Fatal(err)
	}
	out, err := (&invoke.RawExec{}).ExecPlugin(t.Context(), path, nil, os.Environ())
	if string(out) != "here\n" || err != nil {
		t.Errorf("%s: got %q, %v", path, out, err)
	}
	if path, err := invoke.FindInPath("sort", []string{""}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: got %s, %v", path, err)
	}
}

func TestExecPlugin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body, out, err string }{
		{"output", `cat; echo " and more"`, "input and more\n", ""},
		{"own error", `echo '{"code":11,"msg":"later","details":"now busy"}'; exit 1`, "", "later; now busy"},
		{"only a code", `echo '{"code":7}'; echo "no such device" >&2; exit 1`, "", "/plugin failed with code 7 and no message; on stderr: no such device"},
		{"no message", `echo '{"code":7,"details":"see there"}'; exit 1`, "", "/plugin failed with code 7 and no message; see there"},
		{"stderr", `echo "no such device" >&2; exit 3`, "", "failed: exit status 3; on stderr: no such device"},
		{"silence", `exit 1`, "", "failed: exit status 1 with no error message"},
		{"garbage", `echo panic; echo why >&2; exit 2`, "", `exit status 2; it printed "panic", which is not a CNI error; on stderr: why`},
		{"signal", `kill -9 $$`, "", "failed: signal: killed with no error message"},
		{"too much", `head -c 17000000 /dev/zero`, "", "printed more than 16777216 bytes on stdout"},
		{"much on stderr", `head -c 1000000 /dev/zero >&2; echo fine`, "fine\n", ""},
		{"few processors", `echo $GOMAXPROCS`, "2\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := exec(t, context.Background(), tt.body)
			switch {
			case tt.err == "" && (err != nil || out != tt.out):
				t.Errorf("got %q, %v", out, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("got %v, want %s", err, tt.err)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	_, err := (&invoke.RawExec{}).ExecPlugin(context.Background(), "/nonexistent/plugin", nil, nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "start plugin") {
		t.Errorf("got %v", err)
	}
}

func TestErrorKeepsItsCode(t *testing.T) {
	t.Parallel()
	_, err := exec(t, context.Background(), `echo '{"code":50,"msg":"not ready"}'; exit 1`)
	if e := cni.AsError(err); e.Code != cni.CodePluginNotAvailable {
		t.Errorf("got %#v", err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	ctx := invoke.WithTrace(context.Background(), invoke.Trace{Parent: "00-ab-cd-01", State: "a=b"})
	out, err := exec(t, ctx, `env | grep -E '^(TRACE|BAGGAGE|GOMAX)' | sort`, "GOMAXPROCS=7", "TRACEPARENT=old")
	if want := "GOMAXPROCS=7\nTRACEPARENT=00-ab-cd-01\nTRACESTATE=a=b\n"; out != want || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

// A child process that keeps stdout open must not delay the end.
func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	pid := filepath.Join(t.TempDir(), "pid")
	child := pid + ".child"
	_, err := exec(t, ctx, `echo $$ >`+pid+`; sleep 100 & echo $! >`+child+`; wait`)
	if data, err := os.ReadFile(child); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > kerneltest.Slow(4*time.Second) {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if data, err := os.ReadFile(pid); err == nil {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(data))); err == nil {
			t.Errorf("child %s still runs", data)
		}
	}
}

// An upgrade may write a program while a runtime starts it.
func TestTextBusy(t *testing.T) {
	t.Parallel()
	path := script(t, "echo done")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { f.Close() })
	out, err := (&invoke.RawExec{}).ExecPlugin(context.Background(), path, nil, nil)
	if string(out) != "done\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	g, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := (&invoke.RawExec{}).ExecPlugin(ctx, path, nil, nil); !errors.Is(err, syscall.ETXTBSY) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestAsEnvReplaces(t *testing.T) {
	t.Setenv("CNI_COMMAND", "ADD")
	t.Setenv("CNI_IFNAME", "old")
	env := (&invoke.Args{Command: "DEL", ContainerID: "c", NetNS: "/n", PluginArgs: [][2]string{{"A", "1"}, {"B", "2"}}, IfName: "eth0", Path: "/a:/b"}).AsEnv()
	for _, want := range []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=c", "CNI_NETNS=/n", "CNI_ARGS=A=1;B=2", "CNI_IFNAME=eth0", "CNI_PATH=/a:/b"} {
		key, _, _ := strings.Cut(want, "=")
		n := 0
		for _, kv := range env {
			if strings.HasPrefix(kv, key+"=") {
				n++
			}
		}
		if n != 1 || !slices.Contains(env, want) {
			t.Errorf("want once %s in %q", want, env)
		}
	}
}

func TestDelegate(t *testing.T) {
	plugin := script(t, `
test "$CNI_CONTAINERID$CNI_NETNS$CNI_IFNAME$CNI_ARGS" = c/neth0A=1 || exit 9
case $CNI_COMMAND in
ADD) echo '{"ips":[{"version":"4","address":"10.1.0.2/24"}]}' ;;
STATUS) echo '{"code":50,"msg":"not ready"}'; exit 1 ;;
esac`)
	for k, v := range map[string]string{"CNI_CONTAINERID": "c", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_ARGS": "A=1", "CNI_PATH": "/nonexistent:" + filepath.Dir(plugin)} {
		t.Setenv(k, v)
	}
	ctx, conf := context.Background(), []byte(`{"cniVersion":"0.4.0"}`)
	r, err := invoke.DelegateAdd(ctx, "plugin", conf, nil)
	if err != nil || r.CNIVersion != "0.4.0" || r.IPs[0].Address.String() != "10.1.0.2/24" {
		t.Fatalf("ADD: %+v, %v", r, err)
	}
	for name, err := range map[string]error{
		"CHECK": invoke.DelegateCheck(ctx, "plugin", conf, nil),
		"DEL":   invoke.DelegateDel(ctx, "plugin", conf, nil),
		"GC":    invoke.DelegateGC(ctx, "plugin", conf, nil),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := invoke.DelegateStatus(ctx, "plugin", conf, nil); cni.AsError(err).Code != cni.CodePluginNotAvailable {
		t.Errorf("STATUS: %v", err)
	}
	if _, err := invoke.DelegateAdd(ctx, "absent", conf, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestGetVersionInfo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		body string
		want []string // nil: an error
	}{
		{`echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}'`, []string{"0.4.0", "1.0.0"}},
		{`echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1`, []string{"0.1.0"}},
		{`echo nothing`, nil},
		{`exit 1`, nil},
	} {
		info, err := invoke.GetVersionInfo(context.Background(), script(t, tt.body), nil)
		if (err != nil) != (tt.want == nil) || !slices.Equal(info.SupportedVersions, tt.want) {
			t.Errorf("%s: got %v, %v", tt.body, info, err)
		}
	}
}
