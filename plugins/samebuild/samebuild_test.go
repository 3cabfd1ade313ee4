package samebuild

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"
)

// Same accepts this program and a copy in the same directory. It rejects a copy elsewhere, because a test's version
// does not identify the source, and other projects' programs and scripts.
func TestSameBuild(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	far := copied(t, self, filepath.Join(t.TempDir(), "bridge"))
	near := copied(t, self, filepath.Join(filepath.Dir(self), "bridge"))
	link := filepath.Join(t.TempDir(), "bridge")
	text := filepath.Join(filepath.Dir(self), "text")
	goTool, err := exec.LookPath("go")
	if err := errors.Join(err, os.Symlink(near, link), os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	p := &Programs{}
	for file, want := range map[string]bool{self: true, near: true, link: true, far: false, text: false, goTool: false} {
		for range 2 { // the second result is remembered
			if got := p.Same(file, statOf(t, file)); got != want {
				t.Errorf("%s: %v, want %v", file, got, want)
			}
		}
	}
	if _, known := p.known[far]; !known {
		t.Error("the result is not remembered")
	}
	past := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(near, []byte("something else"), 0o755), os.Chtimes(near, past, past)); err != nil {
		t.Fatal(err)
	}
	if p.Same(near, statOf(t, near)) {
		t.Error("a replaced program keeps its old result")
	}
}

func statOf(t *testing.T, file string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// copied copies a program and sets its modification time to the past.
func copied(t *testing.T, from, to string) string {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	past := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(err, out.Close(), os.Chtimes(to, past, past)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A program that imports this module has the module's version.
func TestVersion(t *testing.T) {
	t.Parallel()
	other := func(d ...*debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: "example.org/runtime", Version: "v9.9.9"}, Deps: d}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3": {Main: debug.Module{Path: Module, Version: "v1.2.3"}},
		"v1.0.0": other(&debug.Module{Path: "example.org/x", Version: "v2.0.0"}, &debug.Module{Path: Module, Version: "v1.0.0"}),
		"none":   other(&debug.Module{Path: Module, Version: "v1.0.0", Replace: &debug.Module{Path: "../fairlead"}}),
	} {
		if got := version(info); got != want {
			t.Errorf("%+v: %s, want %s", info, got, want)
		}
	}
	for v, want := range map[string]bool{"v1.2.3": true, "v0.0.0-20260101000000-abcdefabcdef": true, "v1.2.4-0.20260101000000-abcdefabcdef+dirty": false, "(devel)": false, "": false} {
		if definite(v) != want {
			t.Errorf("%q: %v", v, !want)
		}
	}
}
