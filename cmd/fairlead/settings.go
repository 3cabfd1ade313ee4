package main

import (
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

const (
	defaultConfDir    = "/etc/cni/net.d"
	defaultPluginPath = "/opt/cni/bin"
	defaultIfName     = "eth0"
	netnsDir          = "/run/netns" // of ip-netns(8)
)

// settings are what the environment says, under the names cnitool has for it.
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

// runtime is our library with this environment's plugins and cache. Plugins of
// ours run inside this process.
func (a *app) runtime(path []string) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(path, a.getenv("FAIRLEAD_LIB"), inside())
}

// pluginPath is CNI_PATH, or the plugins that were built with this program.
func (a *app) pluginPath() []string {
	if path := a.getenv("CNI_PATH"); path != "" {
		return filepath.SplitList(path)
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		return []string{besides(self)}
	}
	return []string{defaultPluginPath}
}

// besides is the directory of plugins that goes with a program.
func besides(program string) string {
	dir := filepath.Join(filepath.Dir(program), "cni")
	if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
		return dir
	}
	return defaultPluginPath
}

// netnsPath is the absolute path of a namespace that a person names: by its
// path, or as ip-netns(8) does.
func netnsPath(name string) (string, error) {
	if !strings.Contains(name, "/") {
		path := filepath.Join(netnsDir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if _, err := os.Stat(name); err != nil {
			return path, nil // that is where it would be
		}
	}
	return filepath.Abs(name)
}

// containerID names a namespace as cnitool does, so that either can remove
// what the other added.
func containerID(netns string) string {
	sum := sha512.Sum512([]byte(netns))
	return fmt.Sprintf("cnitool-%x", sum[:10])
}

// runtimeConf is the attachment of a namespace.
func (s *settings) runtimeConf(netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: containerID(netns), NetNS: netns, IfName: s.ifName,
		Args: s.args, CapabilityArgs: s.caps,
	}
}
