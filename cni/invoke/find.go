package invoke

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/fairlead/fairlead/cni"
)

// FindInPath returns a plugin's program from the first directory that has it. The type is a name, never a path. It
// skips an empty directory; "." is the current one. If no directory has the program, the error is os.ErrNotExist.
func FindInPath(plugin string, paths []string) (string, error) {
	if err := cni.ValidatePluginType(plugin); err != nil {
		return "", err
	}
	if len(paths) == 0 {
		return "", errors.New("find plugin " + plugin + ": no directories given: set CNI_PATH")
	}
	for _, dir := range paths {
		if dir == "" {
			continue
		}
		for _, ext := range extensions() {
			file := filepath.Join(dir, plugin) + ext
			if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() {
				return withDirectory(file), nil
			}
		}
	}
	return "", fmt.Errorf("failed to find plugin %q in path %q: %w", plugin, paths, fs.ErrNotExist)
}

// withDirectory adds the current directory to a lone name, because package os/exec would search PATH for it.
func withDirectory(file string) string {
	if filepath.Base(file) != file {
		return file
	}
	return "." + string(filepath.Separator) + file
}

func extensions() []string {
	if runtime.GOOS == "windows" {
		return []string{".exe", ""}
	}
	return []string{""}
}
