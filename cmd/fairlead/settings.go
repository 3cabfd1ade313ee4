package main

import (
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/libcni"
)

const (
	defaultConfDir    = "/etc/cni/net.d"
	defaultPluginPath = "/opt/cni/bin"
	defaultIfName     = "eth0"
)

// settings are the settings in the environment, under the names that cnitool uses.
type settings struct {
	confDir string
	path    []string
	ifName  string
	args    [][2]string
	caps    map[string]any
}

func (a *app) settings() (*settings, error) {
	s := &settings{confDir: a.confDir(), path: a.pluginPath(), ifName: a.getenv("CNI_IFNAME")}
	if s.ifName == "" {
		s.ifName = defaultIfName
	}
	if caps := a.getenv("CAP_ARGS"); caps != "" {
		if err := cni.Decode([]byte(caps), &s.caps); err != nil {
			return nil, fmt.Errorf("CAP_ARGS: %w", err)
		}
	}
	args, err := cni.ParseArgs(a.getenv("CNI_ARGS"))
	if err != nil {
		return nil, err
	}
	for _, arg := range args {
		s.args = append(s.args, [2]string{arg.Key, arg.Value})
	}
	return s, nil
}

func (a *app) confDir() string {
	if dir := a.getenv("NETCONFPATH"); dir != "" {
		return dir
	}
	return defaultConfDir
}

// libDir returns the directory of results and addresses.
func (a *app) libDir() string {
	if dir := a.getenv("FAIRLEAD_LIB"); dir != "" {
		return dir
	}
	return libcni.CacheDir
}

// runtime returns our library with this environment's plugins and cache. It runs our plugins inside this process.
func (a *app) runtime(path []string) *libcni.CNIConfig {
	c := libcni.NewCNIConfigWithCacheDir(path, a.getenv("FAIRLEAD_LIB"), builtin.Exec())
	var printed sync.Map // by error: an operation reads a file of the cache more than once
	c.Warn = func(msg string, err error) {
		if _, again := printed.LoadOrStore(err.Error(), true); !again {
			fmt.Fprintf(a.stderr, "fairlead: warning: %s: %v\n", msg, err)
		}
	}
	return c
}

// pluginPath returns CNI_PATH, or the directories of the plugins that were built with this program and of all others.
func (a *app) pluginPath() []string {
	if path := a.getenv("CNI_PATH"); path != "" {
		return filepath.SplitList(path)
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		return pluginDirsOf(self)
	}
	return []string{defaultPluginPath}
}

// runtimePluginPath returns CNI_PATH, or the directory in which runtimes look. A package's own plugins are elsewhere.
func (a *app) runtimePluginPath() []string {
	if path := a.getenv("CNI_PATH"); path != "" {
		return filepath.SplitList(path)
	}
	return []string{defaultPluginPath}
}

// pluginDirsOf returns the directory cni next to a program, if it exists, and the default directory, where runtimes and
// other software have their plugins.
func pluginDirsOf(program string) (dirs []string) {
	dir := filepath.Join(filepath.Dir(program), "cni")
	if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
		dirs = append(dirs, dir)
	}
	return append(dirs, defaultPluginPath)
}

// containerID returns the ID that cnitool gives to a namespace, so that either program can remove what the other added.
func containerID(netns string) string {
	sum := sha512.Sum512([]byte(netns))
	return fmt.Sprintf("cnitool-%x", sum[:10])
}

// runtimeConf returns the attachment of a namespace.
func (s *settings) runtimeConf(netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: containerID(netns), NetNS: netns, IfName: s.ifName,
		Args: s.args, CapabilityArgs: s.caps,
	}
}
