// Package builtin is the set of plugins that run inside the program fairlead.
package builtin

import (
	"debug/buildinfo"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/ovs"
	"github.com/fairlead/fairlead/plugins/samebuild"
	"github.com/fairlead/fairlead/skel"
)

// large returns the plugins that only the program fairlead contains. Their libraries would slow down the start of
// fairlead-cni.
func large() []plugin.Plugin { return []plugin.Plugin{ovs.Plugin()} }

// Named returns the plugin that this program serves when it is started under a plugin's name.
func Named(argv0 string) (skel.Plugin, bool) {
	for _, p := range large() {
		if p.Name == filepath.Base(argv0) {
			return p.Skel(env()), true
		}
	}
	return skel.Plugin{}, false
}

// env returns the environment of plugins inside this program. A program of the same build counts as this program.
func env() plugin.Env {
	return plugin.Env{IPAM: plugins.IPAM(), SameBuild: (&samebuild.Programs{}).Same}
}

// Exec returns a plugin runner that runs the plugins of this project inside this process and all others as programs.
func Exec() *plugin.Exec { return plugins.In(env(), large()...) }

// Find returns the plugin of this project with a name, or nil.
func Find(name string) *plugin.Plugin {
	for _, p := range append(plugins.Declarative(), large()...) {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// Programs returns the program, fairlead or fairlead-cni, that serves each plugin of this project.
func Programs() map[string]string {
	out := map[string]string{}
	for _, p := range plugins.All() {
		out[p.Name] = "fairlead-cni"
	}
	for _, p := range large() {
		out[p.Name] = "fairlead"
	}
	return out
}

// IsOurs reports whether a program was built from this project. It reads the program's build information, not its name.
func IsOurs(path string) bool {
	if self, err := os.Stat("/proc/self/exe"); err == nil {
		if fi, err := os.Stat(path); err == nil && os.SameFile(self, fi) {
			return true
		}
	}
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == samebuild.Module
}
