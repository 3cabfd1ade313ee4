package link

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// machine answers for a host that has one device, dev0.
type machine struct{}

func (machine) Link(s kernel.Side, name string) (*kernel.LinkInfo, error) {
	if s == kernel.Host && name == "dev0" {
		return &kernel.LinkInfo{Name: name, MAC: "02:00:00:00:00:05", Up: true}, nil
	}
	return nil, fmt.Errorf("link %s: %w", name, os.ErrNotExist)
}

func (m machine) Links(s kernel.Side) ([]*kernel.LinkInfo, error) {
	l, err := m.Link(s, "dev0")
	return []*kernel.LinkInfo{l}, err
}
func (machine) Sysctl(kernel.Side, string) (string, error) { return "", os.ErrNotExist }
func (machine) LinkTo(netip.Addr) (string, error)          { return "", os.ErrNotExist }
func (machine) Uplinks() []string                          { return nil }
func (machine) HostID() string                             { return "host" }

// Devices are found by their place in sysfs: a made-up one, as real cards are
// not for tests to take.
func TestDeviceBySysfs(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	for _, dir := range []string{
		"bus/pci/devices/0000:01:00.0/net/dev0",
		"bus/pci/devices/0000:02:00.0/virtio3/net/dev0",
		"bus/pci/devices/0000:03:00.0",
		"bus/pci/drivers/vfio-pci",
		"bus/auxiliary/devices/mlx5_core.sf.2/net/dev0",
		"devices/x/net/dev0",
	} {
		if err := os.MkdirAll(filepath.Join(sys, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../drivers/vfio-pci", filepath.Join(sys, "bus/pci/devices/0000:03:00.0/driver")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, device string // device "": none is moved
		conf         hostDevice
		err          string
	}{
		{"pciBusID", "dev0", hostDevice{PCIBusID: "0000:01:00.0"}, ""},
		{"pciBusID of virtio", "dev0", hostDevice{PCIBusID: "0000:02:00.0"}, ""},
		{"a device of a program (DPDK)", "", hostDevice{PCIBusID: "0000:03:00.0"}, ""},
		{"an auxiliary device", "dev0", hostDevice{PCIBusID: "mlx5_core.sf.2"}, ""},
		{"deviceID beats pciBusID", "dev0", hostDevice{PCIBusID: "0000:09:00.0", Conf: plugin.Conf{Runtime: plugin.Runtime{DeviceID: "0000:01:00.0"}}}, ""},
		{"kernelpath", "dev0", hostDevice{KernelPath: filepath.Join(sys, "devices/x")}, ""},
		{"no such device", "", hostDevice{PCIBusID: "0000:09:00.0"}, "no such device"},
		{"out of sysfs", "", hostDevice{PCIBusID: "../../x"}, "must not lead out of sysfs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conf, result := c.conf, &cni.Result{}
			conf.sys, conf.Raw = sys, []byte("{}")
			a := &plugin.Attachment{Owner: kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}, Netns: "/x", Facts: machine{}}
			err := conf.Validate(a)
			var list kernel.Objects
			if err == nil {
				list, err = conf.Links(a, result)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || len(result.Interfaces) != 1 || result.Interfaces[0].Name != "eth0" {
				t.Fatalf("interfaces %v, %v", result.Interfaces, err)
			}
			moved := ""
			if len(list) > 0 {
				moved = list[0].(*kernel.Moved).Device
			}
			if moved != c.device {
				t.Errorf("moves %q, want %q", moved, c.device)
			}
		})
	}
}
