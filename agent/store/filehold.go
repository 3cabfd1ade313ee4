package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/filelock"
)

// A held key has a file that its holder has locked. When the process dies, the kernel releases the lock, and the next
// process that looks deletes the key. These files are locked, created and removed with the store's lock held.

// sweepEvery is the interval for finding dead holders.
const sweepEvery = time.Second

type sweep struct{ last time.Time }

func (s *sweep) due() bool { return time.Since(s.last) > sweepEvery }

func (f *file) holds() string { return f.path + ".holds" }

// maxName is the maximum length of a file's name in bytes. A longer key's file has hashed and a hash as its name, and
// contains the key. No escaped key begins with hashed.
const (
	maxName = 255
	hashed  = "%hash-"
)

func (f *file) holdFile(key string) string {
	name := url.PathEscape(key)
	if len(name) > maxName {
		name = fmt.Sprintf("%s%x", hashed, sha256.Sum256([]byte(key)))
	}
	return filepath.Join(f.holds(), name)
}

// keyOf returns the key of a holder's file.
func (f *file) keyOf(name string) (string, error) {
	if !strings.HasPrefix(name, hashed) {
		return url.PathUnescape(name)
	}
	key, err := os.ReadFile(filepath.Join(f.holds(), name))
	if err == nil && filepath.Base(f.holdFile(string(key))) != name {
		err = fmt.Errorf("%s does not contain its key", name) // its holder died before it wrote the key
	}
	return string(key), err
}

func (f *file) Hold(ctx context.Context, key string, value []byte, _ time.Duration) (*Held, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fresh(ctx); err != nil {
		return nil, err
	}
	if err := f.locked(ctx, func() error { return f.hold(key, value) }); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	lost, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		f.release(ctx, key, lost)
	}()
	return &Held{Revision: f.held[key].revision, Lost: lost, release: func() { stop(); <-ended }}, nil
}

func (f *file) hold(key string, value []byte) error {
	if err := os.MkdirAll(f.holds(), 0o700); err != nil {
		return fmt.Errorf("hold %s: %w", key, err)
	}
	lock, err := os.OpenFile(f.holdFile(key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("hold %s: %w", key, err)
	}
	ok, err := filelock.Try(int(lock.Fd()))
	if err == nil && !ok {
		err = &ConflictError{[]string{key}}
	}
	if err == nil && strings.HasPrefix(filepath.Base(lock.Name()), hashed) {
		_, err = lock.WriteAt([]byte(key), 0)
	}
	if err == nil {
		err = f.commit([]Op{{Key: key, Value: append([]byte{}, value...), Expect: f.state.entries[key].Revision}})
	}
	if err != nil {
		_ = filelock.Close(lock)
		return err
	}
	f.held[key] = heldFile{lock, f.state.entries[key].Revision}
	return nil
}

// release releases a key when its context ends. Closing the store closes lost.
func (f *file) release(ctx context.Context, key string, lost chan struct{}) {
	select {
	case <-f.closed:
		close(lost)
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		f.releaseKey(key)
	}
}

// releaseKey deletes a held key. If that fails, the next sweep deletes it.
func (f *file) releaseKey(key string) {
	held, ok := f.held[key]
	if !ok {
		return
	}
	delete(f.held, key)
	defer filelock.Close(held.lock)
	_ = f.locked(context.Background(), func() error {
		if e, ok := f.state.entries[key]; ok && e.Revision != held.revision {
			return os.Remove(f.holdFile(key)) // somebody replaced the key
		}
		return f.dead(key)
	})
}

// heldFile is a key that this process holds.
type heldFile struct {
	lock     *os.File
	revision int64
}

func (f *file) dead(key string) error {
	e, ok := f.state.entries[key]
	if ok {
		if err := f.commit([]Op{{Key: key, Expect: e.Revision}}); err != nil {
			return err
		}
	}
	return os.Remove(f.holdFile(key))
}

// sweepHolds deletes the keys of dead holders. A key that cannot be deleted, as on a full disk, stays until the next
// sweep. The caller holds the lock.
func (f *file) sweepHolds() {
	f.swept.last = time.Now()
	entries, _ := os.ReadDir(f.holds()) // without the directory, no key was ever held
	for _, e := range entries {
		key, err := f.keyOf(e.Name())
		if err != nil || f.holdsKey(key) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		_ = f.sweepOne(key)
	}
}

func (f *file) holdsKey(key string) bool { _, ok := f.held[key]; return ok }

func (f *file) sweepOne(key string) error {
	lock, err := os.OpenFile(f.holdFile(key), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer filelock.Close(lock)
	if ok, err := filelock.Try(int(lock.Fd())); !ok || err != nil {
		return err
	}
	return f.dead(key)
}
