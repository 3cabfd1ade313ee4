package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/libcni"
)

// note is a pod as it is remembered from before its first change until after its
// last: what was asked for, and how each network is detached, with whatever
// configuration there is then.
type note struct {
	Pod
	NetnsID string    `json:"netnsID"` // tells a namespace from its successor
	Created time.Time `json:"created"`
	Parts   []noted   `json:"parts"`
}

// whole tells whether nothing was cut off.
func (n *note) whole() bool {
	return !slices.ContainsFunc(n.Parts, func(p noted) bool { return p.Pending })
}

// noted is an attachment of a note.
type noted struct {
	Network        string          `json:"network"`
	Namespace      string          `json:"namespace,omitempty"`
	IfName         string          `json:"ifName"`
	Default        bool            `json:"default,omitempty"`
	DeviceID       string          `json:"deviceID,omitempty"`
	Pending        bool            `json:"pending,omitempty"` // being set up or torn down, or that was cut off
	Config         json.RawMessage `json:"config"`
	Args           [][2]string     `json:"args,omitempty"`
	CapabilityArgs map[string]any  `json:"capabilityArgs,omitempty"`
}

func (n *noted) runtimeConf(id, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: n.IfName, Args: n.Args, CapabilityArgs: n.CapabilityArgs}
}

// notes are the directory of notes.
type notes struct{ dir string }

const noteEnding = ".json"

func (s notes) file(id string) string { return filepath.Join(s.dir, id+noteEnding) }

// read returns a pod's note; none is os.ErrNotExist. A torn one, which a power cut
// may leave in a directory on a disk, is another error.
func (s notes) read(id string) (*note, error) {
	raw, err := os.ReadFile(s.file(id))
	if err != nil {
		return nil, fmt.Errorf("read the note of pod %s: %w", id, err)
	}
	n := &note{}
	if err := json.Unmarshal(raw, n); err != nil || n.ID != id {
		return nil, fmt.Errorf("the note of pod %s, %s, is damaged: %w", id, s.file(id), errors.Join(err, errDamaged))
	}
	return n, nil
}

var errDamaged = errors.New("it cannot be used")

// write puts a note in place as a whole.
func (s notes) write(n *note) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("note pod %s: %w", n.ID, err)
	}
	tmp := filepath.Join(s.dir, "."+n.ID) // no ID begins so; the pod's lock is held
	err = os.WriteFile(tmp, raw, 0o600)
	if err == nil {
		err = os.Rename(tmp, s.file(n.ID))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("note pod %s: %w", n.ID, err)
	}
	return nil
}

func (s notes) remove(id string) error {
	_ = os.Remove(filepath.Join(s.dir, "."+id)) // of a kill
	if err := os.Remove(s.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop the note of pod %s: %w", id, err)
	}
	return nil
}

// ids are those that have a note.
func (s notes) ids() (out []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the notes of pods: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), noteEnding); ok && !strings.HasPrefix(id, ".") {
			out = append(out, id)
		}
	}
	return out, nil
}

// lock keeps a pod to the caller, of this process or another, until unlock. It
// waits as long as the context lets it; the file goes with the last who wants it.
func (s notes) lock(ctx context.Context, id string) (unlock func(), err error) {
	return s.acquire(id, func(f *os.File) error { return filelock.Lock(ctx, int(f.Fd()), f.Name()) })
}

// tryLock is lock without a wait; ok is false while another has the pod.
func (s notes) tryLock(id string) (unlock func(), ok bool, err error) {
	unlock, err = s.acquire(id, func(f *os.File) error {
		free, err := filelock.Try(int(f.Fd()))
		if err == nil && !free {
			err = errTaken
		}
		return err
	})
	if errors.Is(err, errTaken) {
		return nil, false, nil
	}
	return unlock, err == nil, err
}

var errTaken = errors.New("another is at work on it")

func (s notes) acquire(id string, take func(*os.File) error) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock pod %s: %w", id, err)
	}
	path := filepath.Join(s.dir, id+".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			if err = take(f); err == nil && !stands(f) { // whoever had it took it away
				_ = f.Close()
				continue
			}
		}
		if err != nil {
			if f != nil {
				_ = f.Close()
			}
			return nil, fmt.Errorf("lock pod %s: %w", id, err)
		}
		return func() {
			_ = os.Remove(path)
			_ = f.Close()
		}, nil
	}
}

// stands tells whether an open file is still the one of its name.
func stands(f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(f.Name())
	return err == nil && os.SameFile(a, b)
}
