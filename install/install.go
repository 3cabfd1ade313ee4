// Package install puts files in place of others and can bring those back: the plugins in a
// directory where runtimes look for them, which may hold the reference's.
//
// Each file is written beside its place and renamed, so that a program that runs is never
// "text file busy", and nobody sees half of one. What is replaced is kept, and a manifest
// says so before it is replaced: a kill at any step leaves what Install or Uninstall
// completes.
package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// stateDir is where the manifest and what was replaced are, below the directory: the names
// of plugins have no dot.
const stateDir = ".fairlead"

// File is a file to put in place: Link is the target of a symbolic link, else the content
// is that of the file From, or Data.
type File struct {
	Path string // absolute
	Link string
	From string
	Data []byte
	Mode os.FileMode // of what is no link
}

// The actions that are reported.
const (
	Created  = "created"
	Replaced = "replaced" // another's; it is kept
	Updated  = "updated"  // ours, of another version
	Same     = "same"
	Restored = "restored"
	Removed  = "removed"
	Left     = "left" // somebody else's by now
)

// Done is what was done with a file, or would be.
type Done struct {
	Path   string `json:"path"`
	Action string `json:"action"`
	Kept   string `json:"kept,omitempty"` // where what was replaced is
}

// entry is a file in the manifest. Its path is relative to the directory, so that it is the
// same where a container has the host's files below another root.
type entry struct {
	Path string   `json:"path"`
	Link string   `json:"link,omitempty"`
	Sums []string `json:"sha256,omitempty"` // of what was put there, the newest last
	Kept string   `json:"kept,omitempty"`   // name below stateDir/kept
}

// Place is a directory with its state.
type Place struct {
	dir      string
	manifest []entry
}

// Open reads the state of a directory, which need not exist yet.
func Open(dir string) (*Place, error) {
	p := &Place{dir: dir}
	raw, err := os.ReadFile(p.state("manifest.json"))
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &p.manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("read what is installed in %s: %w", dir, err)
	}
	return p, nil
}

// Installed tells whether the directory has something of ours.
func (p *Place) Installed() bool { return len(p.manifest) > 0 }

func (p *Place) state(name string) string { return filepath.Join(p.dir, stateDir, name) }

// Install puts files in place, in their order. With dry it only says what it would do.
func (p *Place) Install(files []File, dry bool) (out []Done, err error) {
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
	there, err := look(f.Path)
	if err != nil {
		return Done{}, err
	}
	done := Done{Path: f.Path, Action: Created}
	switch {
	case there.is(f.Link, sum) && e != nil:
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

// made tells whether what is there is what the entry says was put there.
func (e *entry) made(there found) bool {
	return e != nil && (there.link != "" && there.link == e.Link || there.sum != "" && slices.Contains(e.Sums, there.sum))
}

// keep saves what is about to be replaced: a second name where the file system has such,
// so that it is complete at any moment.
func (p *Place) keep(path, kept string) error {
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	tmp := kept + "~"
	_ = os.Remove(tmp)
	if err := os.Link(path, tmp); err != nil {
		if err := copyAside(path, tmp); err != nil {
			return fmt.Errorf("keep what is there: %w", err)
		}
	}
	err := os.Rename(tmp, kept)
	_ = os.Remove(tmp) // a rename between two names of one file does nothing
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

// Uninstall brings back what was replaced and removes the rest. What is not ours by now
// stays.
func (p *Place) Uninstall(dry bool) (out []Done, err error) {
	for _, e := range slices.Backward(slices.Clone(p.manifest)) {
		done, err := p.back(&e, dry)
		if err != nil {
			return out, fmt.Errorf("uninstall %s: %w", e.Path, err)
		}
		out = append(out, done)
		if dry {
			continue
		}
		p.manifest = slices.DeleteFunc(p.manifest, func(x entry) bool { return x.Path == e.Path })
		if err := p.write(); err != nil {
			return out, err
		}
	}
	if !dry {
		_ = os.Remove(p.state("manifest.json"))
		_ = os.Remove(p.state("kept")) // with something in it, it stays
		_ = os.Remove(filepath.Join(p.dir, stateDir))
	}
	return out, nil
}

func (p *Place) back(e *entry, dry bool) (Done, error) {
	path := filepath.Join(p.dir, e.Path)
	there, err := look(path)
	if err != nil {
		return Done{}, err
	}
	done := Done{Path: path}
	kept := p.state("kept/" + e.Kept)
	if _, err := os.Lstat(kept); e.Kept == "" || err != nil {
		kept = ""
	}
	switch {
	case !there.none && !e.made(there):
		done.Action, done.Kept = Left, kept
		return done, nil
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
