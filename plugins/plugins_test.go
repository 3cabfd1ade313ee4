package plugins_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
)

// A plugin whose file is this program runs in process. The same name with another file, or an unknown name, runs as a
// process.
func TestInProcess(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ours, reference := t.TempDir(), t.TempDir()
	link := func(dir, name, to string) string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const answer = "#!/bin/sh\necho '{\"cniVersion\": \"0.4.0\", \"supportedVersions\": [\"0.4.0\"]}'\n"
	script := filepath.Join(reference, "script")
	if err := os.WriteFile(script, []byte(answer), 0o755); err != nil {
		t.Fatal(err)
	}
	x := plugins.In(plugin.Env{})
	for path, inside := range map[string]bool{
		link(ours, "bridge", self): true, link(ours, "fairlead-chain", self): true,
		link(reference, "bridge", script): false, link(reference, "other", script): false,
	} {
		if _, ok := x.InProcess(path); ok != inside {
			t.Errorf("%s runs in process: %v", path, ok)
		}
		info, err := invoke.GetVersionInfo(context.Background(), path, x)
		want := []string{"0.4.0"}
		if inside {
			want = cni.Versions()
		}
		if err != nil || !slices.Equal(info.SupportedVersions, want) {
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
	trusting := plugins.In(plugin.Env{SameBuild: func(file string, _ fs.FileInfo) bool { return strings.HasPrefix(file, reference) }})
	if _, ok := trusting.InProcess(filepath.Join(reference, "bridge")); !ok {
		t.Error("a program that Env.SameBuild accepts does not run in process")
	}
}

// An in-process failure returns the protocol error that a process would print, without a cause.
func TestInProcessError(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bridge")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	x := plugins.In(plugin.Env{})
	environ := []string{"CNI_COMMAND=ADD", "CNI_COMMAND=STATUS", "CNI_PATH=/nowhere"} // the last one counts
	_, err = x.ExecPlugin(context.Background(), path, []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "mtu": -1}`), environ)
	var e *cni.Error
	if !errors.As(err, &e) || e.Code != cni.CodeInvalidNetworkConfig || e.CNIVersion != "1.1.0" || e.Unwrap() != nil || !strings.Contains(e.Msg, "mtu = -1") {
		t.Errorf("%+v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(os.ErrDeadlineExceeded)
	_, failed, err := x.ExecList(ctx, []invoke.Member{{Path: path}}, &invoke.Args{Command: "ADD"})
	if failed != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a context that ended: %d, %v", failed, err)
	}
}
