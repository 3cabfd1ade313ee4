package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// copyAside copies a file or a link to another file system.
func copyAside(path, to string) error {
	if target, err := os.Readlink(path); err == nil {
		return os.Symlink(target, to)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return writeFile(to, func(w io.Writer) error { return copyOf(w, path) }, fi.Mode().Perm())
}

// move renames a file, or copies it if it cannot be renamed.
func move(from, to string) error {
	if err := os.Rename(from, to); err == nil {
		return nil
	}
	if err := replace(to, func(tmp string) error { return copyAside(from, tmp) }); err != nil {
		return err
	}
	return os.Remove(from)
}

// found describes the file at a path, if there is one.
type found struct {
	none      bool
	link, sum string
	mode      os.FileMode // of a file
}

func inspect(path string) (found, error) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return found{none: true}, nil
	case err != nil:
		return found{}, err
	case fi.Mode()&os.ModeSymlink != 0:
		link, err := os.Readlink(path)
		return found{link: link}, err
	case !fi.Mode().IsRegular():
		return found{}, fmt.Errorf("is not a file (%s): move it away first", fi.Mode().Type())
	}
	sum, err := File{From: path}.sum()
	return found{sum: sum, mode: fi.Mode()}, err
}

func (f found) is(link, sum string) bool {
	return !f.none && (link != "" && f.link == link || sum != "" && f.sum == sum)
}

// runs reports whether a program is executable. A file of another kind need not be.
func (f found) runs(want File) bool {
	return want.Link != "" || want.Mode&0o100 == f.mode&want.Mode&0o100
}

// sum returns the SHA-256 of the content, or "" for a link.
func (f File) sum() (string, error) {
	if f.Link != "" {
		return "", nil
	}
	h := sha256.New()
	if err := f.content(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (f File) content(w io.Writer) error {
	if f.From != "" {
		return copyOf(w, f.From)
	}
	_, err := w.Write(f.Data)
	return err
}

func (f File) write() error {
	if err := makeDir(filepath.Dir(f.Path)); err != nil {
		return err
	}
	return replace(f.Path, func(tmp string) error {
		if f.Link != "" {
			return os.Symlink(f.Link, tmp)
		}
		return writeFile(tmp, f.content, f.Mode)
	})
}

// makeDir is os.MkdirAll with the mode 0755 whatever the umask is: a rootless runtime uses the plugins, too.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return os.MkdirAll(dir, 0o755) // it exists, or the error says why not
	}
	if err := makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) { // another process creates it, or it is a broken link
		return os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// replace creates a temporary file next to a path and renames it.
func replace(path string, make func(tmp string) error) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"~")
	_ = os.Remove(tmp) // left by a process that was killed
	if err := make(tmp); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return os.Rename(tmp, path)
}

// writeFile writes a new file and syncs it to disk.
func writeFile(path string, content func(io.Writer) error, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = errors.Join(content(f), f.Chmod(mode), f.Sync())
	return errors.Join(err, f.Close())
}

func copyOf(w io.Writer, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}
