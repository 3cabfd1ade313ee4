// Package reference installs the reference implementation's programs for tests
// that compare with them, through the Go module proxy, outside the tree.
package reference

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/internal/built"
)

// Versions of the reference that everything here is compared with.
const (
	PluginsVersion = "v1.9.1"
	CNIVersion     = "v1.3.0"
)

const (
	pluginsModule = "github.com/containernetworking/plugins/plugins/"
	cnitoolModule = "github.com/containernetworking/cni/cnitool"
)

// folders says in which folder of the module a plugin lives.
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

// Plugin returns the path of the reference plugin of a name, which is installed
// if it is not there yet. All plugins share one directory, fit for CNI_PATH.
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

// InstallPlugin is Plugin for a program that is no test.
func InstallPlugin(name string) (string, error) {
	folder, ok := folders()[name]
	if !ok {
		return "", fmt.Errorf("the reference has no plugin %q", name)
	}
	return program(name, pluginsModule+folder+"/"+name+"@"+PluginsVersion)
}

// InstallAll installs everything that there is, for a place without a network.
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
