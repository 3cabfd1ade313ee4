package main

import (
	"debug/buildinfo"
	"os"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
)

// module is ours; a Go program says of which it was built.
const module = "github.com/fairlead/fairlead"

// declared is the plugin of ours by a name, or nil.
func declared(name string) *plugin.Plugin {
	for _, p := range plugins.Declarative() {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// isOurs tells whether a program is one of this project's: by what it was
// built of, never by its name.
func isOurs(path string) bool {
	if self, err := os.Stat("/proc/self/exe"); err == nil {
		if fi, err := os.Stat(path); err == nil && os.SameFile(self, fi) {
			return true
		}
	}
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == module
}
