// Package install puts files into place and can restore the files that it replaced: the plugins in the directory where
// runtimes search for them, which may hold the reference plugins.
//
// It writes each file next to its place and renames it. So a running program is never "text file busy", and nobody sees
// an incomplete file. It keeps the files that it replaces, and writes them into a manifest first: if it is killed at
// any step, the next Install or Uninstall completes the work.
package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/fairlead/fairlead/internal/filelock"
)

// stateDir is the directory, below the plugins, with the manifest and the replaced files. The names of plugins have no
// dot.
const stateDir = ".fairlead"

// File is a file to put into place. It is a symbolic link to Link, or else a copy of the file From, or else Data.
type File struct {
	Path string // absolute
	Link string
	From string
	Data []byte
	Mode os.FileMode // not used for a link
}

// The actions that Install and Uninstall report.
const (
	Created  = "created"
	Replaced = "replaced" // it was a file of other software, which is kept
	Updated  = "updated"  // it was our file in another version
	Same     = "same"
	Restored = "restored"
	Removed  = "removed"
	Left     = "left" // other software has changed it since
	InUse    = "in use"
)

// Done is an action on a file, completed or planned.
type Done struct {
	Path   string `json:"path"`
	Action string `json:"action"`
	Kept   string `json:"kept,omitempty"` // path of the file that was replaced
}

// entry is a file in the manifest. Its path is relative to the directory: a container may see the host's directory at
// another path.
type entry struct {
	Path string   `json:"path"`
	Link string   `json:"link,omitempty"`
	Old  []string `json:"oldLinks,omitempty"` // former values of Link
	Sums []string `json:"sha256,omitempty"`   // of all versions that were installed, the newest last
	Kept string   `json:"kept,omitempty"`     // name below stateDir/kept
}

// Place is a directory with its manifest.
type Place struct {
	dir      string
	manifest []entry
}

// Open reads the manifest of a directory. The directory need not exist.
func Open(dir string) (*Place, error) {
	p := &Place{dir: dir}
	return p, p.read()
}

func (p *Place) read() error {
	p.manifest = nil
	raw, err := os.ReadFile(p.state("manifest.json"))
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%s is not a directory", p.dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the list of installed files: %w", err)
	}
	err = json.Unmarshal(raw, &p.manifest)
	if err == nil && (p.manifest == nil || slices.ContainsFunc(p.manifest, func(e entry) bool { return e.Path == "" })) {
		err = errors.New("it is not a list of paths")
	}
	if err != nil {
		return fmt.Errorf("the list of installed files, %s, is damaged: %w\nThe files that they replaced are in %s. Move those that you need to %s, delete %s, and install again",
			p.state("manifest.json"), err, p.state("kept"), p.dir, filepath.Join(p.dir, stateDir))
	}
	return nil
}

// lock keeps other processes from changing the directory, and reads what they changed before. The lock is the directory's
// own, so it also works between a container and the host.
func (p *Place) lock() (unlock func(), err error) {
	d, err := os.Open(p.dir)
	if err != nil {
		return nil, err
	}
	err = filelock.Lock(context.Background(), int(d.Fd()), p.dir)
	if err == nil {
		err = p.read()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return func() { _ = filelock.Close(d) }, nil
}

// Installed reports whether Install has put files into the directory.
func (p *Place) Installed() bool { return len(p.manifest) > 0 }

func (p *Place) state(name string) string { return filepath.Join(p.dir, stateDir, name) }

// Install puts files into place, in their order. With dry it only reports what it would do.
func (p *Place) Install(files []File, dry bool) (out []Done, err error) {
	if !dry {
		if err := makeDir(p.dir); err != nil {
			return nil, err
		}
		unlock, err := p.lock()
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	for _, f := range files {
		done, err := p.put(f, dry)
		if err != nil {
			return out, fmt.Errorf("install %s: %w", f.Path, err)
		}
		out = append(out, done)
	}
	return out, nil
}

func (p *Place) put(f File, dry bool) (Done, error) {
	sum, err := f.sum()
	if err != nil {
		return Done{}, err
	}
	name, err := filepath.Rel(p.dir, f.Path)
	if err != nil {
		return Done{}, err
	}
	e := p.entry(name)
	there, err := inspect(f.Path)
	if err != nil {
		return Done{}, err
	}
	done := Done{Path: f.Path, Action: Created}
	switch {
	case there.is(f.Link, sum) && there.runs(f) && e != nil:
		return Done{Path: f.Path, Action: Same}, nil
	case there.none:
	case e.made(there):
		done.Action = Updated
	default:
		done.Action, done.Kept = Replaced, p.state("kept/"+filepath.Base(f.Path))
	}
	if dry {
		return done, nil
	}
	if e == nil {
		p.manifest = append(p.manifest, entry{Path: name})
		e = &p.manifest[len(p.manifest)-1]
	}
	if done.Action == Replaced {
		if err := p.keep(f.Path, done.Kept); err != nil {
			return Done{}, err
		}
		e.Kept = filepath.Base(f.Path)
	}
	if e.Link != "" && e.Link != f.Link && !slices.Contains(e.Old, e.Link) {
		e.Old = append(e.Old, e.Link) // if this call is killed, the next one finds the old link
	}
	e.Link = f.Link
	if sum != "" && !slices.Contains(e.Sums, sum) {
		e.Sums = append(e.Sums, sum)
	}
	if err := p.write(); err != nil {
		return Done{}, err
	}
	return done, f.write()
}

func (p *Place) entry(path string) *entry {
	for i := range p.manifest {
		if p.manifest[i].Path == path {
			return &p.manifest[i]
		}
	}
	return nil
}

// made reports whether the file at the path is the one that Install put there.
func (e *entry) made(there found) bool {
	return e != nil && (there.link != "" && (there.link == e.Link || slices.Contains(e.Old, there.link)) ||
		there.sum != "" && slices.Contains(e.Sums, there.sum))
}

// keep saves a file that is about to be replaced. It prefers a hard link, which is complete at any moment.
func (p *Place) keep(path, kept string) error {
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	tmp := kept + "~"
	_ = os.Remove(tmp)
	if err := os.Link(path, tmp); err != nil {
		if err := copyAside(path, tmp); err != nil {
			return fmt.Errorf("keep the file that is there: %w", err)
		}
	}
	err := os.Rename(tmp, kept)
	_ = os.Remove(tmp) // a rename between two names of one file does nothing, so remove it
	return err
}

func (p *Place) write() error {
	raw, err := json.MarshalIndent(p.manifest, "", " ")
	if err == nil {
		err = os.MkdirAll(filepath.Join(p.dir, stateDir), 0o755)
	}
	if err != nil {
		return err
	}
	return replace(p.state("manifest.json"), func(tmp string) error {
		return writeFile(tmp, func(w io.Writer) error { _, err := w.Write(raw); return err }, 0o644)
	})
}

// Uninstall restores the files that were replaced and removes the others. It keeps files that other software has
// changed, and those with the given base names, which are in use. A later Uninstall includes them.
func (p *Place) Uninstall(inUse []string, dry bool) (out []Done, err error) {
	if !dry {
		unlock, err := p.lock()
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil // nothing can be installed in a directory that does not exist
		}
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	for _, e := range slices.Backward(slices.Clone(p.manifest)) {
		if slices.Contains(inUse, filepath.Base(e.Path)) {
			out = append(out, Done{Path: filepath.Join(p.dir, e.Path), Action: InUse})
			continue
		}
		done, err := p.back(&e, dry)
		if err != nil {
			return out, fmt.Errorf("uninstall %s: %w", filepath.Join(p.dir, e.Path), err)
		}
		out = append(out, done)
		if dry {
			continue
		}
		p.manifest = slices.DeleteFunc(p.manifest, func(x entry) bool { return x.Path == e.Path })
		if err := p.write(); err != nil {
			return out, fmt.Errorf("update the list of installed files: %w", err)
		}
	}
	if !dry && len(p.manifest) == 0 {
		_ = os.Remove(p.state("manifest.json"))
		_ = os.Remove(p.state("kept")) // fails if a file is kept
		_ = os.Remove(filepath.Join(p.dir, stateDir))
	}
	return out, nil
}

func (p *Place) back(e *entry, dry bool) (Done, error) {
	path := filepath.Join(p.dir, e.Path)
	there, err := inspect(path)
	if err != nil {
		return Done{}, err
	}
	done := Done{Path: path}
	kept, lost, err := p.kept(e)
	if err != nil {
		return Done{}, err
	}
	switch {
	case !there.none && !e.made(there):
		done.Action, done.Kept = Left, kept
		return done, nil
	case lost && !there.none:
		return Done{}, fmt.Errorf("the file that it replaced is no longer in %s: reinstall the package that it came from, or delete %s; then uninstall again",
			p.state("kept"), path)
	case kept != "":
		done.Action = Restored
		if !dry {
			err = move(kept, path)
		}
	default:
		done.Action = Removed
		if !dry && !there.none {
			err = os.Remove(path)
		}
	}
	return done, err
}

// kept returns the path of the file that an entry replaced, or "". lost reports that it replaced one that is not kept any
// more.
func (p *Place) kept(e *entry) (path string, lost bool, err error) {
	if e.Kept == "" {
		return "", false, nil
	}
	path = p.state("kept/" + e.Kept)
	_, err = os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", true, nil
	}
	return path, false, err
}
