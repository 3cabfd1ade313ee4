package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/ociimage"
)

// entry is one file or symbolic link of an archive or package.
type entry struct {
	path string // below the prefix, which is /usr in packages and /usr/local for the tar.gz
	data []byte
	mode os.FileMode
	link string // the target of a symbolic link
}

// tree returns everything that is installed for one architecture. The systemd units run the program below prefix.
func (r *release) tree(arch, prefix string) ([]entry, error) {
	t := treeBuilder{release: r}
	for _, p := range programs {
		t.copy("lib/fairlead/"+p, r.program(arch, p), 0o755)
	}
	t.link("bin/fairlead", "../lib/fairlead/fairlead")
	plugins, err := r.plugins()
	if err != nil {
		return nil, err
	}
	for name, program := range plugins {
		t.link("lib/fairlead/cni/"+name, "../"+program)
	}
	t.units(prefix)
	t.copy("share/bash-completion/completions/fairlead", r.generated("bash"), 0o644)
	t.copy("share/zsh/vendor-completions/_fairlead", r.generated("zsh"), 0o644)
	t.copy("share/fish/vendor_completions.d/fairlead.fish", r.generated("fish"), 0o644)
	t.manPages()
	t.copy("share/doc/fairlead/copyright", filepath.Join(r.root, "LICENSE"), 0o644)
	t.copy("share/doc/fairlead/NOTICES", r.generated("NOTICES"), 0o644)
	t.copy("share/doc/fairlead/CHANGELOG.md", filepath.Join(r.root, "CHANGELOG.md"), 0o644)
	t.copy("share/doc/fairlead/agent.yaml", filepath.Join(r.root, "contrib/agent/agent.yaml"), 0o644)
	t.copy("share/doc/fairlead/docker/compose.yaml", filepath.Join(r.root, "contrib/docker/compose.yaml"), 0o644)
	t.copy("share/doc/fairlead/docker/config.json", filepath.Join(r.root, "contrib/docker/plugin/config.json"), 0o644)
	t.manifests()
	slices.SortFunc(t.entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return t.entries, t.err
}

// treeBuilder collects entries and keeps the first error.
type treeBuilder struct {
	*release
	entries []entry
	err     error
}

func (t *treeBuilder) add(path string, data []byte, mode os.FileMode) {
	t.entries = append(t.entries, entry{path: path, data: data, mode: mode})
}

func (t *treeBuilder) link(path, target string) {
	t.entries = append(t.entries, entry{path: path, link: target, mode: 0o777})
}

func (t *treeBuilder) read(file string) []byte {
	data, err := os.ReadFile(file)
	if t.err == nil {
		t.err = err
	}
	return data
}

func (t *treeBuilder) copy(path, file string, mode os.FileMode) { t.add(path, t.read(file), mode) }

// units adds the systemd units. In the source they run /usr/bin/fairlead.
func (t *treeBuilder) units(prefix string) {
	files, err := filepath.Glob(filepath.Join(t.root, "contrib/systemd/fairlead-*"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no systemd units in contrib/systemd")
	}
	if t.err == nil {
		t.err = err
	}
	for _, file := range files {
		unit := bytes.ReplaceAll(t.read(file), []byte("=/usr/bin/fairlead"), []byte("="+prefix+"/bin/fairlead"))
		t.add("lib/systemd/system/"+filepath.Base(file), unit, 0o644)
	}
}

// manifests adds the Kubernetes manifests, with the image of this release.
func (t *treeBuilder) manifests() {
	image, err := t.imageName()
	if t.err == nil {
		t.err = err
	}
	for _, name := range []string{"fairlead.yaml", "plugins.yaml", "etcd.yaml"} {
		data := t.read(filepath.Join(t.root, "contrib/kubernetes", name))
		t.add("share/doc/fairlead/kubernetes/"+name, bytes.ReplaceAll(data, []byte(ociimage.DefaultName), []byte(image)), 0o644)
	}
}

// manPages adds the man pages, compressed as Debian Policy (section 12.1) asks.
func (t *treeBuilder) manPages() {
	files, err := filepath.Glob(filepath.Join(t.generated("man"), "*.[18]"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no man pages were generated")
	}
	if t.err == nil {
		t.err = err
	}
	for _, file := range files {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
		if _, err := w.Write(t.read(file)); err != nil && t.err == nil {
			t.err = err
		}
		if err := w.Close(); err != nil && t.err == nil {
			t.err = err
		}
		name := filepath.Base(file)
		t.add("share/man/man"+name[len(name)-1:]+"/"+name+".gz", packed.Bytes(), 0o644)
	}
}
