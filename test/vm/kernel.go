package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// debian is one of Debian's kernels for virtual machines.
type debian struct {
	series  string // the kernel series, for example 6.1
	pkg     string
	version string // the pinned version of the package; if Debian has dropped it, a newer one is used
}

func kernels() []debian {
	return []debian{
		{"6.1", "linux-image-6.1.0-56-cloud-amd64", "6.1.192-2"},
		{"6.12", "linux-image-6.12.117+deb12-cloud-amd64", "6.12.117-1~deb12u1"},
	}
}

// image is an unpacked kernel.
type image struct{ release, dir string }

func (i image) bzImage() string { return filepath.Join(i.dir, "vmlinuz") }
func (i image) modules() string { return filepath.Join(i.dir, "lib", "modules", i.release) }

const imagePrefix = "linux-image-"

// fetch returns a kernel from the cache, or downloads and unpacks it. Debian drops a version when it has a newer one;
// fetch then takes the newer one and prints a message.
func fetch(ctx context.Context, k debian, cache string, say func(string, ...any)) (image, error) {
	i := image{strings.TrimPrefix(k.pkg, imagePrefix), filepath.Join(cache, k.pkg)}
	if _, err := os.Stat(i.dir); err == nil {
		return i, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return i, err
	}
	temp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return i, err
	}
	defer os.RemoveAll(temp)
	say("downloading %s %s", k.pkg, k.version)
	if err := download(ctx, temp, k.pkg+"="+k.version); err != nil {
		newer, err2 := newest(ctx, k.series)
		if err2 != nil {
			return i, errors.Join(err, err2)
		}
		if newer == k.pkg {
			err = download(ctx, temp, newer)
		} else {
			say("Debian no longer has %s: using %s", k.pkg, newer)
			return fetch(ctx, debian{k.series, newer, "*"}, cache, say)
		}
		if err != nil {
			return i, err
		}
	}
	say("unpacking %s", k.pkg)
	return i, unpack(ctx, temp, i)
}

// download downloads a package. It updates apt's lists if they do not have the package.
func download(ctx context.Context, dir, pkg string) error {
	get := func() error {
		return output(ctx, dir, nil, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", pkg)
	}
	err := get()
	if err == nil {
		return nil
	}
	if err := output(ctx, dir, nil, "apt-get", "-qq", "update"); err != nil {
		return err
	}
	return get()
}

// newest returns the name of a series' latest package in apt's lists.
func newest(ctx context.Context, series string) (string, error) {
	var list bytes.Buffer
	pattern := "^" + imagePrefix + strings.ReplaceAll(series, ".", `\.`) + `[.+-].*-cloud-amd64$`
	if err := output(ctx, "", &list, "apt-cache", "search", "--names-only", pattern); err != nil {
		return "", err
	}
	best := ""
	for line := range strings.Lines(list.String()) {
		if name := strings.Fields(line)[0]; best == "" || newerVersion(name, best) {
			best = name
		}
	}
	if best == "" {
		return "", fmt.Errorf("apt has no package %s%s-*-cloud-amd64: kernel 6.12 needs bookworm-backports or bookworm-security in the sources", imagePrefix, series)
	}
	return best, nil
}

// newerVersion reports whether package a has a higher version than b, by the numbers in their names.
func newerVersion(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) > 0 }

func numbers(s string) (out []int) {
	digits := false
	for _, c := range s {
		if c < '0' || c > '9' {
			digits = false
			continue
		}
		if !digits {
			out = append(out, 0)
		}
		digits = true
		out[len(out)-1] = out[len(out)-1]*10 + int(c-'0')
	}
	return out
}

// unpack extracts an image from the package file in a directory.
func unpack(ctx context.Context, temp string, i image) error {
	debs, err := filepath.Glob(filepath.Join(temp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download left %d packages (%w)", len(debs), err)
	}
	tree, complete := filepath.Join(temp, "tree"), image{i.release, filepath.Join(temp, "whole")}
	if err := output(ctx, "", nil, "dpkg-deb", "-x", debs[0], tree); err != nil {
		return err
	}
	from := filepath.Join(tree, "lib", "modules", i.release)
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		from = filepath.Join(tree, "usr", "lib", "modules", i.release)
	}
	err = errors.Join(
		os.MkdirAll(filepath.Dir(complete.modules()), 0o755),
		os.Rename(filepath.Join(tree, "boot", "vmlinuz-"+i.release), complete.bzImage()),
		os.Rename(from, complete.modules()))
	if err == nil {
		err = decompress(ctx, complete.modules())
	}
	if err == nil {
		err = output(ctx, "", nil, "depmod", "-b", complete.dir, i.release)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(complete.dir, i.dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// decompress decompresses the modules, so that the guest does not have to at each load.
func decompress(ctx context.Context, dir string) error {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko.xz") {
			files = append(files, path)
		}
		return err
	})
	for some := range slices.Chunk(files, 100) {
		err = errors.Join(err, output(ctx, "", nil, "xz", append([]string{"-d"}, some...)...))
	}
	return err
}

// output runs a program. If it fails, the error contains the program's output.
func output(ctx context.Context, dir string, stdout *bytes.Buffer, name string, args ...string) error {
	var text bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &text, &text
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(text.Bytes()))
	}
	return nil
}
