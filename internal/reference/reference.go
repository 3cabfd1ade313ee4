// Package reference installs the reference implementation's programs for tests
// that compare with them, through the Go module proxy, outside the tree.
package reference

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
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
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the reference's programs: %w", err)
	}
	dir := filepath.Join(cache, "fairlead-test", "plugins-"+PluginsVersion+"-cni-"+CNIVersion)
	// The test's thread may be in a network namespace without a way out; a new
	// goroutine runs on one that is not.
	done := make(chan error)
	go func() { done <- install(dir, name, pkg) }()
	return filepath.Join(dir, name), <-done
}

// install builds a program unless it is there. Tests of several packages run
// at once: the first builds, the others wait.
func install(dir, name, pkg string) error {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return build(dir, name, pkg)
}

// build installs beside dir first and renames: what is in dir is whole.
func build(dir, name, pkg string) error {
	temp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	cmd := exec.Command("go", "install", pkg)
	cmd.Dir = temp // no go.mod near: the module's own versions count
	cmd.Env = append(os.Environ(), "GOBIN="+temp, "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install %s: %w\n%s", pkg, err, out)
	}
	return os.Rename(filepath.Join(temp, name), filepath.Join(dir, name))
}
