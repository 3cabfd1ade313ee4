package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/internal/plainfile"
)

// folder keeps one JSON file per object.
type folder[T any] struct{ dir string }

func (f folder[T]) file(id string) string { return filepath.Join(f.dir, id+".json") }

// read returns an object, or os.ErrNotExist.
func (f folder[T]) read(id string) (*T, error) {
	raw, err := plainfile.Read(f.file(id))
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", f.file(id), err)
	}
	return v, nil
}

// write replaces an object's file atomically.
func (f folder[T]) write(id string, v *T) error {
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err != nil {
		return err
	}
	return local.Replace(f.file(id), raw, 0o600)
}

func (f folder[T]) remove(id string) error {
	if err := os.Remove(f.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ids returns the IDs of all objects.
func (f folder[T]) ids() (out []string) {
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.json"))
	for _, file := range files {
		out = append(out, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	slices.Sort(out)
	return out
}

// clear removes what a kill left of a write.
func (f folder[T]) clear() { local.RemoveUnfinished(f.dir) }
