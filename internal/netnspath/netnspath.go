// Package netnspath finds network namespaces by the names and paths that users type.
package netnspath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/kernel/netns"
)

// Dir is the directory in which ip-netns(8) keeps namespaces.
const Dir = "/run/netns"

// Resolve returns the absolute path of a namespace from its path or from its name in Dir.
func Resolve(name string) (string, error) {
	if !strings.Contains(name, "/") {
		path := filepath.Join(Dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if fi, err := os.Stat(name); err != nil || fi.IsDir() {
			return path, nil // "ip netns add" would create it there
		}
	}
	return filepath.Abs(name)
}

// Exists reports whether a path leads to a network namespace. A file that this process cannot open counts as one, for
// example if too many files are open: callers remove attachments whose namespace does not exist.
func Exists(path string) bool {
	ns, err := netns.Open(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	ns.Close()
	return true
}
