package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// module is a Go module that a program links.
type module struct {
	Path, Version, Sum, Dir string
	licences                []string // SPDX identifiers
	texts                   [][]byte // licence and notice files
}

// licenceFile matches the names under which modules keep their licence and their notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// modules lists the modules that the programs link on any architecture, sorted by path.
func (r *release) modules() ([]module, error) {
	found := map[string]module{}
	for _, arch := range r.archs {
		out, err := command(r.root, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch}, "go", "list", "-deps",
			"-f", "{{with .Module}}{{if .Version}}{{.Path}}{{end}}{{end}}", "./cmd/fairlead", "./cmd/fairlead-cni")
		if err != nil {
			return nil, err
		}
		for _, path := range strings.Fields(string(out)) {
			found[path] = module{Path: path}
		}
	}
	// The image carries these certificates, although no program links the module.
	found["golang.org/x/crypto/x509roots/fallback"] = module{Path: "golang.org/x/crypto/x509roots/fallback"}
	args := []string{"mod", "download", "-json"}
	for path := range found {
		args = append(args, path)
	}
	out, err := command(r.root, nil, "go", args...)
	if err != nil {
		return nil, err
	}
	var list []module
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m module
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if err := m.readLicences(); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// readLicences reads the licence files in the module's top directory and identifies them.
func (m *module) readLicences() error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, text)
		for _, match := range licensecheck.Scan(text).Match {
			if match.ID != "GooglePatentsFile" && !match.IsURL && !slices.Contains(m.licences, match.ID) {
				m.licences = append(m.licences, match.ID)
			}
		}
	}
	if len(m.texts) == 0 || len(m.licences) == 0 {
		return fmt.Errorf("%s %s: no known licence in its directory", m.Path, m.Version)
	}
	return nil
}

// writeNotices collects the licences of all linked modules and of Go itself in one file.
func (r *release) writeNotices() error {
	modules, err := r.modules()
	if err != nil {
		return err
	}
	root, err := command(r.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	gotext, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "Fairlead %s contains the following software under the following licences.\n", r.version)
	section := func(name string, texts ...[]byte) {
		fmt.Fprintf(&out, "\n%s\n%s\n\n", strings.Repeat("=", 80), name)
		for _, text := range texts {
			out.Write(bytes.TrimSpace(text))
			out.WriteString("\n\n")
		}
	}
	section("The Go standard library", gotext)
	for _, m := range modules {
		section(fmt.Sprintf("%s %s (%s)", m.Path, m.Version, strings.Join(m.licences, ", ")), m.texts...)
	}
	return os.WriteFile(r.generated("NOTICES"), out.Bytes(), 0o644)
}
