// Command release builds everything that a release of Fairlead consists of, from the checked-out source:
//
//   - fairlead-VERSION-linux-ARCH.tar.gz, and a .deb and an .rpm package for each architecture;
//   - fairlead-VERSION-image.tar, an OCI image for all architectures;
//   - fairlead-VERSION.cdx.json, a software bill of materials (CycloneDX 1.6);
//   - SHA256SUMS.
//
// The same source, version and Go toolchain give the same bytes. "make release" runs it.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	r := release{}
	flag.StringVar(&r.version, "version", "", "the `version` to release, without a leading v: 0.1.0 or 0.2.0-rc.1")
	flag.StringVar(&r.root, "root", "../..", "the `directory` of the source tree")
	flag.StringVar(&r.out, "o", "../../bin/release", "write the files to this `directory`; its old content is removed")
	archs := flag.String("arch", "amd64,arm64", "architectures to build for, as GOARCH names them, separated by commas")
	flag.Parse()
	r.archs = strings.Split(*archs, ",")
	if r.version == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one run of the command.
type release struct {
	version, root, out string
	archs              []string

	time  time.Time // the modification time of every file
	stage string    // a temporary directory for programs and generated files
}

func (r *release) run() (err error) {
	if err := r.prepare(); err != nil {
		return err
	}
	defer os.RemoveAll(r.stage)
	steps := []struct {
		name string
		do   func() error
	}{
		{"programs", r.buildPrograms},
		{"completions and man pages", r.generate},
		{"licences", r.writeNotices},
		{"archives and packages", r.writePackages},
		{"image", r.writeImage},
		{"bill of materials", r.writeBOM},
		{"checksums", r.writeSums},
	}
	for _, step := range steps {
		start := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("%-26s %5.1f s\n", step.name, time.Since(start).Seconds())
	}
	fmt.Printf("fairlead %s is in %s\n", r.version, r.out)
	return nil
}

// prepare makes paths absolute, empties the output directory and finds the time that files get.
func (r *release) prepare() (err error) {
	for _, dir := range []*string{&r.root, &r.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if r.time, err = sourceTime(r.root); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	r.stage, err = os.MkdirTemp("", "fairlead-release-")
	return err
}

// program returns the path of a built program.
func (r *release) program(arch, name string) string { return filepath.Join(r.stage, arch, name) }

// write puts one file of the release into the output directory.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// writeSums lists the digest of every file in the form that "sha256sum --check" reads.
func (r *release) writeSums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), e.Name()))
	}
	slices.Sort(lines)
	return r.write("SHA256SUMS", []byte(strings.Join(lines, "")))
}
