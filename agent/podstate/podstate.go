// Package podstate is the state on disk that the plugin fairlead-pod and the node agent share: the cluster's
// NetworkAttachmentDefinitions, which the agent writes, and each pod's networks, which the plugin writes. It outlives a
// reboot, because addresses do.
package podstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/internal/plainfile"
)

// Dir is the directory with the state.
type Dir struct{ root string }

// Open returns the directory of a host's state.
func Open(d local.Dir) Dir { return Dir{d.Root()} }

const ending = ".json"

// version is the format of the files. It grows when an older program would misread a file.
const version = 1

// read decodes a file. The error of a file that does not exist satisfies errors.Is(err, fs.ErrNotExist).
func read(path string, into any) error {
	raw, err := plainfile.Read(path)
	if err != nil {
		return err
	}
	var head struct{ Version int }
	if err = json.Unmarshal(raw, &head); err == nil && head.Version != version {
		err = fmt.Errorf("its version is %d: this program reads version %d", head.Version, version)
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// write writes a file atomically. Only root may read it, because configurations may contain keys.
func write(path string, v any) error { return writeBy(local.Replace, path, v) }

func writeBy(replace func(string, []byte, os.FileMode) error, path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replace(path, raw, 0o600)
}

// remove removes a file, if there is one, and what killed processes left of it.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, _ := os.ReadDir(filepath.Dir(path)) // without the directory, there is nothing left
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), local.Unfinished+filepath.Base(path)+"-") {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return nil
}

// names returns the names of the files in a directory, without their ending.
func names(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ending); ok && !strings.HasPrefix(name, ".") {
			out = append(out, name)
		}
	}
	return out, err
}
