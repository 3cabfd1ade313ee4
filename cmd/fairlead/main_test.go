package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// TestMain makes the test binary all programs, by their names: fairlead, cnitool and every plugin.
func TestMain(m *testing.M) {
	programs := map[string]func(){"fairlead": main, "cnitool": main, "ovs": main}
	for _, p := range plugins.All() {
		programs[p.Name] = func() { skel.PluginMain(p) }
	}
	testscript.Main(m, programs)
}

// TestScripts runs testdata/*.txtar, each on a host of its own. Networks are in $WORK/net.d, and "ip netns" creates
// namespaces.
func TestScripts(t *testing.T) {
	programs := map[string]string{}
	for _, n := range []string{"dhcp", "tuning"} {
		programs[n] = reference.Plugin(t, n) // the host of a test reaches no module proxy
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			host(env.T().(interface{ testing.TB }))
			env.Setenv("NETCONFPATH", filepath.Join(env.WorkDir, "net.d"))
			if self, err := os.Executable(); err == nil {
				env.Setenv("SELF", self)
			}
			env.Setenv("CNI_PATH", filepath.SplitList(env.Getenv("PATH"))[0])
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"code": code, "others": others(programs), "appears": appears},
	})
}

// code runs a command that must end with an exit code: code 3 fairlead validate x.
func code(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ProcessState.String()[len("exit status "):]
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s: %v", got, args[0], err)
	}
}

// appears waits until a file exists, which a program in the background writes.
func appears(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(kerneltest.Slow(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not appear", args[0])
		}
	}
}

// others adds reference plugins to CNI_PATH, with "theirs-" before their names.
func others(programs map[string]string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, names []string) {
		dir := ts.MkAbs("others")
		ts.Check(os.MkdirAll(dir, 0o755))
		for _, n := range names {
			ts.Check(os.Symlink(programs[n], filepath.Join(dir, "theirs-"+n)))
		}
		ts.Setenv("CNI_PATH", ts.Getenv("CNI_PATH")+":"+dir)
	}
}

// host makes the test's thread a host with a new network namespace, and with its own /run and /var/lib. Everything ends
// with the test.
func host(t testing.TB) {
	t.Helper()
	kerneltest.Host(t)
	kerneltest.PrivateMounts(t)
	must(t, syscall.Mount("test", "/run", "tmpfs", 0, ""))
	must(t, syscall.Mount("test", "/var/lib", "tmpfs", 0, ""))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call runs the program inside the test with an environment.
func call(env map[string]string, argv ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, getenv: func(k string) string { return env[k] }}
	code = run(context.Background(), a, argv)
	return code, out.String(), errs.String()
}

// write creates a file in a directory.
func write(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
