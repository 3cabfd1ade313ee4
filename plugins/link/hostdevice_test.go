package link

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// sysfs creates a tree with devices that the test machine lacks.
func sysfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{
		"bus/pci/devices/0000:00:1f.6/net/dev0",
		"bus/pci/devices/0000:00:05.0/virtio2/net/dev0",
		"bus/auxiliary/devices/mlx5_core.sf.4/net/dev0",
		"bus/pci/devices/0000:00:09.0/net",
		"bus/pci/drivers/vfio-pci", "bus/pci/devices/0000:3b:00.1",
		"devices/pci0000:00/0000:00:1f.6/net/dev0",
	} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../drivers/vfio-pci", filepath.Join(dir, "bus/pci/devices/0000:3b:00.1/driver")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestHostDeviceBySysfs(t *testing.T) {
	t.Parallel()
	sys := sysfs(t)
	p := HostDevice()
	p.New = func() plugin.Config { return &hostDevice{sys: sys} }
	const move = "ip link set dev0 netns container name eth0"
	for _, tt := range []struct{ keys, object, want string }{
		{`"pciBusID": "0000:00:1f.6"`, move, "pci 0000:00:1f.6"},
		{`"pciBusID": "0000:00:05.0"`, move, "pci 0000:00:05.0"},
		{`"pciBusID": "mlx5_core.sf.4"`, move, "pci "}, // the result names no PCI device
		{`"kernelpath": "` + sys + `/devices/pci0000:00/0000:00:1f.6"`, move, ""},
		{`"pciBusID": "0000:00:1f.6", "runtimeConfig": {"deviceID": "mlx5_core.sf.4"}`, move, "pci "},
		// As in the reference plugin, the result names the runtime's device.
		{`"kernelpath": "` + sys + `/devices/pci0000:00/0000:00:1f.6", "runtimeConfig": {"deviceID": "0000:ff:ff.f"}`,
			move, "pci 0000:ff:ff.f"},
		// A user-space program drives this device: there is no interface to move.
		{`"pciBusID": "0000:3b:00.1"`, "", "pci 0000:3b:00.1"},
		{`"pciBusID": "0000:00:09.0"`, "error", `no such device, or it has no network interface on the host`},
		{`"pciBusID": "0000:ff:ff.f"`, "error", `pciBusID = "0000:ff:ff.f": no such device`},
		{`"kernelpath": "/sys/../etc"`, "error", `kernelpath = "/sys/../etc": want a device's folder below`},
		{`"kernelpath": "relative"`, "error", `kernelpath = "relative": want a device's folder below`},
		{`"kernelpath": "` + sys + `/devices/pci0000:00/*"`, "error", `: want a device's folder below`},
		{`"pciBusID": "*"`, "error", `pciBusID = "*": want a device's address on its bus`},
		{`"pciBusID": "../x"`, "error", `pciBusID = "../x": want a device's address on its bus`},
		{`"runtimeConfig": {"deviceID": "a/b"}`, "error", `runtimeConfig.deviceID = "a/b": want a device's address`},
		{`"hwaddr": "02:00"`, "error", `"02:00" is not a hardware address`},
	} {
		conf := []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "host-device", ` + tt.keys + `}`)
		r := &cni.Result{}
		list, err := plugintest.Try(p, conf, r)
		if tt.object == "error" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %s", tt.keys, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.keys, err)
			continue
		}
		if got := first(list); got != tt.object {
			t.Errorf("%s: states %q, want %q", tt.keys, got, tt.object)
		}
		if tt.want != "" && "pci "+r.Interfaces[0].PciID != tt.want {
			t.Errorf("%s: result names %q, want %s", tt.keys, r.Interfaces[0].PciID, tt.want)
		}
	}
}

func first(list kernel.Objects) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].String()
}
