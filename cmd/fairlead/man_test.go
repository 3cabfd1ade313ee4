package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"

	"github.com/fairlead/fairlead/cni"
)

// TestManPages renders a man page for every command. With FAIRLEAD_MAN=DIR the pages stay in that directory: make
// release packs them.
func TestManPages(t *testing.T) {
	dir := os.Getenv("FAIRLEAD_MAN")
	if dir == "" {
		dir = t.TempDir()
	}
	version := os.Getenv("FAIRLEAD_MAN_VERSION")
	if version == "" {
		version = cni.Version()
	}
	root := newApp().root()
	root.DisableAutoGenTag = true
	must(t, doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "fairlead " + version, Manual: "Fairlead"}, dir))
	pages, err := filepath.Glob(filepath.Join(dir, "fairlead*.8"))
	must(t, err)
	if len(pages) < 20 {
		t.Errorf("%d man pages: %q", len(pages), pages)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "fairlead-add.8"))
	must(t, err)
	for _, want := range []string{".SH SYNOPSIS", ".SH OPTIONS", "fairlead " + version} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("fairlead-add.8 has no %q:\n%s", want, raw)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	for _, page := range pages {
		if out, err := exec.Command(groff, "-man", "-ww", "-Tutf8", "-z", page).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff -man %s: %v: %s", filepath.Base(page), err, out)
		}
	}
}
