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
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
)

// note is the stored state of a pod. It exists from before the pod's first change until after its last. It contains the
// requested settings, and everything that is needed to detach each network after its configuration has changed.
type note struct {
	Pod
	// NetnsID and NetnsCookie distinguish a namespace from a later one at the same path: see netns.ID.
	NetnsID     string    `json:"netnsID"`
	NetnsCookie uint64    `json:"netnsCookie,omitempty"`
	Created     time.Time `json:"created"`
	Parts       []noted   `json:"parts"`
}

func (n *note) namespace() netns.ID { return netns.FromStored(n.NetnsID, n.NetnsCookie) }

// whole reports whether no operation was interrupted.
func (n *note) whole() bool {
	return !slices.ContainsFunc(n.Parts, func(p noted) bool { return p.Pending })
}

// attached reports whether no requested network was detached.
func (n *note) attached() bool {
	for i, network := range requested(&n.Pod) {
		name := network.InterfaceName(i)
		if !slices.ContainsFunc(n.Parts, func(p noted) bool { return p.IfName == name }) {
			return false
		}
	}
	return true
}

// noted is an attachment in a note.
type noted struct {
	Network        string          `json:"network"`
	Namespace      string          `json:"namespace,omitempty"`
	IfName         string          `json:"ifName"`
	Default        bool            `json:"default,omitempty"`
	DeviceID       string          `json:"deviceID,omitempty"`
	Pending        bool            `json:"pending,omitempty"` // an operation is running or was interrupted
	Config         json.RawMessage `json:"config"`
	Args           [][2]string     `json:"args,omitempty"`
	CapabilityArgs map[string]any  `json:"capabilityArgs,omitempty"`
}

func (n *noted) runtimeConf(id, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: netns, IfName: n.IfName, Args: n.Args, CapabilityArgs: n.CapabilityArgs}
}

// notes is the directory of notes.
type notes struct{ dir string }

const noteEnding = ".json"

func (s notes) file(id string) string { return filepath.Join(s.dir, id+noteEnding) }

// read returns a pod's note, or os.ErrNotExist if there is none. A torn note, which a power cut can leave on a disk, is
// another error.
func (s notes) read(id string) (*note, error) {
	raw, err := plainfile.Read(s.file(id))
	if err != nil {
		return nil, fmt.Errorf("read the state of pod %s: %w", id, err)
	}
	n := &note{}
	err = json.Unmarshal(raw, n)
	if err == nil && n.ID != id {
		err = fmt.Errorf("it names the pod %q", n.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("the state of pod %s in %s is damaged: tear the pod down: %w", id, s.file(id), err)
	}
	return n, nil
}

// write writes a note atomically.
func (s notes) write(n *note) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("write the state of pod %s: %w", n.ID, err)
	}
	tmp := filepath.Join(s.dir, "."+n.ID) // no ID starts with a dot, and the caller holds the pod's lock
	err = os.WriteFile(tmp, raw, 0o600)
	if err == nil {
		err = os.Rename(tmp, s.file(n.ID))
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write the state of pod %s: %w", n.ID, err)
	}
	return nil
}

func (s notes) remove(id string) error {
	_ = os.Remove(filepath.Join(s.dir, "."+id)) // left by a kill
	if err := os.Remove(s.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the state of pod %s: %w", id, err)
	}
	return nil
}

// ids returns the IDs of all pods with a note.
func (s notes) ids() (out []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the state of pods: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), noteEnding); ok && !strings.HasPrefix(id, ".") {
			out = append(out, id)
		}
	}
	return out, nil
}

// lock locks a pod for the caller, against this process and others, until unlock. It waits until the context ends. The
// last holder removes the lock file.
func (s notes) lock(ctx context.Context, id string) (unlock func(), err error) {
	return s.acquire(id, func(f *os.File) error { return filelock.Lock(ctx, int(f.Fd()), f.Name()) })
}

// tryLock is lock without waiting. ok is false if another holder has the pod.
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

var errTaken = errors.New("another operation on it is running")

func (s notes) acquire(id string, take func(*os.File) error) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock pod %s: %w", id, err)
	}
	path := filepath.Join(s.dir, id+".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			if err = take(f); err == nil && !isCurrent(f) { // the previous holder may have removed the file
				_ = filelock.Close(f)
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
			_ = filelock.Close(f)
		}, nil
	}
}

// isCurrent reports whether an open file is still the one at its path.
func isCurrent(f *os.File) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(f.Name())
	return err == nil && os.SameFile(a, b)
}
