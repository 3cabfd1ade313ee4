package dbus

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// bus starts a real bus.
func bus(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "bus.conf")
	text := `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=` + dir + `/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow own="*"/><allow receive_sender="*"/></policy></busconfig>`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dbus-daemon", "--nofork", "--config-file="+conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+dir+"/bus,guid=1")
	kerneltest.Eventually(t, func() error { return kerneltest.Listens(dir + "/bus") })
}

func TestCalls(t *testing.T) {
	bus(t)
	c, err := System()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const name, path = "org.freedesktop.DBus", "/org/freedesktop/DBus"
	for owner, want := range map[string]bool{name: true, "org.nobody": false} {
		if got, err := c.CallBool(name, path, name, "NameHasOwner", owner); err != nil || got != want {
			t.Errorf("%s has an owner: %v, %v", owner, got, err)
		}
	}
	e, ok := errors.AsType[*Error](c.Call(name, path, name, "NoSuchMethod"))
	if !ok || e.Name != "org.freedesktop.DBus.Error.UnknownMethod" || e.Message == "" {
		t.Errorf("no such method: %+v", e)
	}
	e, ok = errors.AsType[*Error](c.Call("org.nobody", "/x", "org.nobody", "Do", "a", "", "ü"))
	if !ok || e.Name != "org.freedesktop.DBus.Error.ServiceUnknown" {
		t.Errorf("nobody: %+v", e)
	}
	if _, err := c.CallBool(name, path, "org.freedesktop.DBus.Peer", "Ping"); err == nil {
		t.Error("a call without a result yields a boolean")
	}
}

func TestNoBus(t *testing.T) {
	for _, address := range []string{"unix:path=/nonexistent/bus", "unix:path=" + t.TempDir()} {
		t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
		if _, err := System(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", address, err)
		}
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "tcp:host=localhost")
	if _, err := System(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message(7, "org.a", "/a", "org.a", "Do", []string{"x", "yz"}))
	f.Add([]byte("l\x03\x01\x01\x05\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x00\x05\x01u\x00\x09\x00\x00\x00\x00\x00\x00\x00a"))
	f.Fuzz(func(t *testing.T, p []byte) {
		m, size, err := parse(p)
		if err == nil && size > len(p) {
			t.Errorf("%d of %d bytes", size, len(p))
		}
		_ = m.text()
	})
}
