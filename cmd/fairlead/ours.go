package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/ours"
	"github.com/fairlead/fairlead/plugins/ovs"
	"github.com/fairlead/fairlead/skel"
)

// slow are the plugins that this program serves, not fairlead-cni: the libraries
// they need would make every plugin slow to start.
func slow() []plugin.Plugin { return []plugin.Plugin{ovs.Plugin()} }

// asPlugin is the plugin that this program is when it is started by a name.
// Addresses come from within where IPAM's plugin is the fairlead-cni beside it.
func asPlugin(argv0 string) (skel.Plugin, bool) {
	for _, p := range slow() {
		if p.Name != filepath.Base(argv0) {
			continue
		}
		return p.Skel(env()), true
	}
	return skel.Plugin{}, false
}

// env is what plugins inside this program share: a program of the same build is
// as good as this one.
func env() plugin.Env {
	return plugin.Env{IPAM: plugins.IPAM(), Ours: (&ours.Programs{}).Same}
}

// inside runs the plugins of this project without a process, all others as one.
func inside() *plugin.Exec { return plugins.In(env(), slow()...) }

// declared is the plugin of ours by a name, or nil.
func declared(name string) *plugin.Plugin {
	for _, p := range append(plugins.Declarative(), slow()...) {
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
	return err == nil && info.Main.Path == ours.Module
}
