// Command image writes the OCI image of the programs as an archive: see internal/ociimage. "make image" calls it for
// this machine's architecture, and "make release" writes an image for several.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/fairlead/fairlead/internal/ociimage"
)

func main() {
	out := flag.String("o", "fairlead-image.tar", "write the archive to this `file`")
	name := flag.String("name", ociimage.DefaultName, "the image's `reference`")
	arch := flag.String("arch", runtime.GOARCH, "the architecture of the programs, as GOARCH names it")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: image [-o FILE] [-name REFERENCE] [-arch ARCH] PROGRAM...\nThe first program is the image's entry point.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*out, *name, *arch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, name, arch string, programs []string) error {
	p := ociimage.Platform{Arch: arch}
	for _, path := range programs {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p.Programs = append(p.Programs, ociimage.Program{Name: filepath.Base(path), Data: data})
	}
	archive, err := ociimage.Archive(name, []ociimage.Platform{p})
	if err != nil {
		return err
	}
	return os.WriteFile(out, archive, 0o644)
}
