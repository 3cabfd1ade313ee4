// Package reference installs the reference implementation's programs for comparison in tests. It builds them through
// the Go module proxy, outside the tree.
package reference

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/internal/built"
)

// These are the versions of the reference implementation.
const (
	PluginsVersion = "v1.10.0"
	CNIVersion     = "v1.3.1"
)

const (
	pluginsModule = "github.com/containernetworking/plugins/plugins/"
	cnitoolModule = "github.com/containernetworking/cni/cnitool"
)

// folders maps each plugin to its folder in the module.
func folders() map[string]string {
	folder := map[string]string{}
	for name, plugins := range map[string][]string{
		"ipam": {"dhcp", "host-local", "static"},
		"main": {"bridge", "dummy", "host-device", "ipvlan", "loopback", "macvlan", "ptp", "tap", "vlan"},
		"meta": {"bandwidth", "firewall", "portmap", "sbr", "tuning", "vrf"},
	} {
		for _, p := range plugins {
			folder[p] = name
		}
	}
	return folder
}

// Plugin returns the path of a reference plugin, and installs it if necessary. All plugins are in one directory, which
// can be used as CNI_PATH.
func Plugin(t testing.TB, name string) string {
	t.Helper()
	return must(t)(InstallPlugin(name))
}

// Cnitool returns the path of the reference runtime's command.
func Cnitool(t testing.TB) string {
	t.Helper()
	return must(t)(program("cnitool", cnitoolModule+"@"+CNIVersion))
}

func must(t testing.TB) func(string, error) string {
	return func(path string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// InstallPlugin is Plugin for programs that are not tests.
func InstallPlugin(name string) (string, error) {
	folder, ok := folders()[name]
	if !ok {
		return "", fmt.Errorf("the reference has no plugin %q", name)
	}
	return program(name, pluginsModule+folder+"/"+name+"@"+PluginsVersion)
}

// InstallAll installs all programs, for later use without a network.
func InstallAll() error {
	_, err := program("cnitool", cnitoolModule+"@"+CNIVersion)
	errs := []error{err}
	for name := range folders() {
		_, err := InstallPlugin(name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func program(name, pkg string) (string, error) {
	return built.Program("plugins-"+PluginsVersion+"-cni-"+CNIVersion, name, built.Install(pkg, ""))
}
