package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// WrittenList is the name of a file in the agent's directory of lasting state. It has the path of the list that the agent
// wrote, and the hash of its content.
const WrittenList = "written-list"

// writeCNIConfig writes the network configuration that runtimes wait for. The file stays when the agent stops:
// containers can be created without the agent. If cni.file has changed, the earlier file is removed: a runtime uses the
// first one by name. lib is the agent's directory of lasting state.
func writeCNIConfig(all *config.Config, lib string) error {
	c := all.CNI
	if c.File == "" {
		return nil
	}
	list, err := []byte(c.List), error(nil)
	if all.Policy.Enabled {
		if list, err = delegate.WithPolicy(list); err != nil {
			return fmt.Errorf("cni.list: %w", err)
		}
	}
	switch {
	case all.PodNetworks.Enabled:
		list, err = delegate.FusePod(list)
	case c.Fuse:
		list, err = delegate.FuseChain(list)
	}
	if err != nil {
		return fmt.Errorf("cni.list: %w", err)
	}
	var want bytes.Buffer
	if err := json.Indent(&want, list, "", "  "); err != nil {
		return fmt.Errorf("cni.list: %w", err)
	}
	want.WriteByte('\n')
	if err := replaceList(c.File, want.Bytes(), filepath.Join(lib, WrittenList)); err != nil {
		return fmt.Errorf("cni.file: %w", err)
	}
	return nil
}

// replaceList writes a list, and notes it. It removes the list of an earlier note.
func replaceList(path string, list []byte, note string) error {
	before, err := plainfile.Read(note)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	noted := path + "\n" + sumOf(list) + "\n"
	have, err := plainfile.Read(path)
	same := err == nil && bytes.Equal(have, list)
	if same && string(before) == noted {
		return nil
	}
	if !same {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := local.Replace(path, list, 0o644); err != nil {
			return err
		}
	}
	if err := removeEarlierList(string(before), path); err != nil {
		return err
	}
	return local.Replace(note, []byte(noted), 0o644)
}

// earlierList returns an error if a file comes before the agent's list: the runtime uses the first one by name, and its
// containers get another network, without policy. Multus comes first as well, and calls the agent's list.
func earlierList(file string) error {
	if file == "" {
		return nil
	}
	files, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		return nil // the agent has not written its list yet
	}
	for _, f := range files {
		if f.Name() >= filepath.Base(file) {
			return nil
		}
		path := filepath.Join(filepath.Dir(file), f.Name())
		first := typeOf(path)
		if strings.HasPrefix(first, "multus") {
			return nil
		}
		if first != "" {
			return fmt.Errorf("the container runtime uses %s, which comes before %s: remove it, or give cni.file a name that comes first", path, filepath.Base(file))
		}
	}
	return nil
}

// typeOf returns the type of the first plugin in a file, or "" if runtimes do not use the file.
func typeOf(path string) string {
	if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(path)) {
		return ""
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	type plugin struct {
		Type string `json:"type"`
	}
	var list struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	raw, err := plainfile.Read(path)
	if err != nil || json.Unmarshal(raw, &list) != nil {
		return ""
	}
	if len(list.Plugins) > 0 {
		return list.Plugins[0].Type
	}
	return list.Type
}

func sumOf(list []byte) string { return fmt.Sprintf("%x", sha256.Sum256(list)) }

// removeEarlierList removes the file of a note, unless it is the current file or somebody else has changed it.
func removeEarlierList(note, current string) error {
	path, sum, _ := strings.Cut(strings.TrimSuffix(note, "\n"), "\n")
	if path == "" || path == current {
		return nil
	}
	raw, err := plainfile.Read(path)
	if err == nil && sumOf(raw) == sum {
		err = os.Remove(path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
