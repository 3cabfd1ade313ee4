package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// HostDevice returns the plugin that moves a device of the host into a container.
func HostDevice() plugin.Plugin {
	return plugin.Plugin{
		Name: "host-device", About: "moves a device of the host into a container, and back on DEL",
		New: func() plugin.Config { return &hostDevice{sys: "/sys"} },
	}
}

type hostDevice struct {
	plugin.Conf
	Device     string `json:"device"`
	HWAddr     string `json:"hwaddr"`
	KernelPath string `json:"kernelpath"`
	PCIBusID   string `json:"pciBusID"`
	UseNetwork bool   `json:"useInterfaceNetwork"`

	sys     string      // where sysfs is mounted
	pciKey  string      // pciBusID, or the key that replaced it
	network hostNetwork // of the device on the host, with useInterfaceNetwork
}

func (c *hostDevice) Validate(*plugin.Attachment) error {
	c.pciKey = "pciBusID"
	if c.Runtime.DeviceID != "" {
		c.PCIBusID, c.pciKey = c.Runtime.DeviceID, "runtimeConfig.deviceID"
	}
	if c.HWAddr != "" {
		hw, err := hwaddr.Canonical(c.HWAddr)
		if err != nil {
			return cni.Invalid(c.Raw, "hwaddr", err.Error())
		}
		c.HWAddr = hw
	}
	const pattern = `*?[\` // Facts.Glob would find another device
	if c.PCIBusID == ".." || strings.ContainsAny(c.PCIBusID, "/"+pattern) {
		return cni.Invalid(c.Raw, c.pciKey, "want a device's address on its bus, like 0000:00:1f.6")
	}
	below := strings.HasPrefix(filepath.Clean(c.KernelPath), c.sysPath("devices")+"/")
	if c.KernelPath != "" && (!below || strings.ContainsAny(c.KernelPath, pattern)) {
		return cni.Invalid(c.Raw, "kernelpath", "want a device's folder below /sys/devices/")
	}
	if c.Device == "" && c.HWAddr == "" && c.KernelPath == "" && c.PCIBusID == "" {
		return cni.Invalid(c.Raw, "device", `specify either "device", "hwaddr", "kernelpath" or "pciBusID"`)
	}
	return nil
}

func (c *hostDevice) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	driver := c.userSpaceDriver(a)
	switch {
	case driver != "" && c.UseNetwork:
		return nil, cni.Invalid(c.Raw, "useInterfaceNetwork", "the device has the driver "+driver+", so it has no network interface")
	case driver != "":
		// The device has no network interface: a user-space program drives it by its PCI address.
		r.Interfaces = append(r.Interfaces, cni.Interface{Name: a.IfName, Sandbox: a.Netns, PciID: c.PCIBusID})
		return nil, nil
	}
	m, mac, err := c.find(a)
	if err != nil {
		return nil, err
	}
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: a.IfName, Mac: mac, Sandbox: a.Netns, PciID: c.pciID()})
	return kernel.Objects{m}, nil
}

// pciID returns the device's PCI address, or "" if it is on the auxiliary bus, like "mlx5_core.sf.4".
func (c *hostDevice) pciID() string {
	if strings.Contains(c.PCIBusID, ":") {
		return c.PCIBusID
	}
	return ""
}

func (c *hostDevice) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	if c.userSpaceDriver(a) != "" {
		return nil, nil
	}
	_, v6 := plugin.Families(r) // in CHECK, also the addresses that the device had
	i := plugin.Interface{Name: a.IfName, KeepIPv6: c.UseNetwork && (!v6 || c.Prev != nil)}
	own := plugin.Routes(a.IfName, r)
	c.network.addTo(r)
	return slices.Concat(i.Objects(r), own, c.network.objects(a.IfName)), nil
}

// Find returns the device with this attachment's owner tag, on the host or in the container. Otherwise it returns the
// container's interface, if the reference plugin moved it before the node switched to Fairlead.
func (c *hostDevice) Find(a *plugin.Attachment) (kernel.Objects, error) {
	for _, side := range []kernel.Side{kernel.Container, kernel.Host} {
		links, err := a.Facts.Links(side)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, l := range links {
			tag, device, ok := kernel.ParseHostDeviceTag(l.Alias)
			if ok && owns(a, tag) {
				return kernel.Objects{&kernel.HostDevice{Device: device, Name: l.Name, OwnerTag: l.Alias}}, nil
			}
		}
	}
	l, err := a.Facts.Link(kernel.Container, a.IfName)
	if err != nil || !c.movedByReference(l) {
		return nil, nil
	}
	return kernel.Objects{&kernel.HostDevice{Device: l.Alias, Name: l.Name, OwnerTag: l.Alias}}, nil
}

// owns reports whether a tag belongs to this attachment, perhaps under a former name of the network.
func owns(a *plugin.Attachment, tag string) bool {
	o, ok := kernel.ParseOwnerTag(tag)
	return a.Owns(tag) || ok && o.ContainerID == a.ContainerID && o.IfName == a.IfName
}

// movedByReference reports whether the reference plugin moved the container's interface: the alias is the device's name
// on the host. Only "device" tells that name. A PCI device has no link type.
func (c *hostDevice) movedByReference(l *kernel.LinkInfo) bool {
	switch {
	case cni.ValidateInterfaceName(l.Alias) != nil:
		return false
	case c.Device != "":
		return l.Alias == c.Device
	case c.HWAddr != "":
		return l.MAC == c.HWAddr
	}
	return l.Kind == ""
}

// find returns the object and the hardware address of the container's device if it is in place, otherwise those of the
// host's. Another device on the host may have its name by now.
func (c *hostDevice) find(a *plugin.Attachment) (*kernel.HostDevice, string, error) {
	in, err := a.Facts.Link(kernel.Container, a.IfName)
	if err == nil {
		if tag, device, ok := kernel.ParseHostDeviceTag(in.Alias); ok && a.Owns(tag) {
			return &kernel.HostDevice{Device: device, Name: a.IfName, OwnerTag: in.Alias, PreviousUp: in.Up}, in.MAC, nil
		}
	}
	if i := c.added(a); i != nil {
		return c.fromResult(a, i, in)
	}
	l, err := c.onHost(a)
	if err != nil {
		return nil, "", err
	}
	m := &kernel.HostDevice{Device: l.Name, Name: a.IfName, OwnerTag: kernel.HostDeviceTag(a.Owner, l.Name), PreviousAlias: l.Alias, PreviousUp: l.Up, Hardware: l.Kind == ""}
	if c.UseNetwork {
		if c.network, err = networkOf(a, l); err != nil {
			return nil, "", err
		}
		c.network.keepIn(m)
	}
	return m, l.MAC, nil
}

// added returns the container's interface in prevResult, or nil. In CHECK, ADD has put the device there.
func (c *hostDevice) added(a *plugin.Attachment) *cni.Interface {
	if c.Prev == nil {
		return nil
	}
	i := slices.IndexFunc(c.Prev.Interfaces, func(i cni.Interface) bool { return i.Name == a.IfName && i.Sandbox == a.Netns })
	if i < 0 {
		return nil
	}
	return &c.Prev.Interfaces[i]
}

// fromResult returns the object for a device that prevResult has in the container, where in is the interface or nil. The
// reference plugin may have moved it, or Fairlead under a former name of the network: then its alias is right.
func (c *hostDevice) fromResult(a *plugin.Attachment, want *cni.Interface, in *kernel.LinkInfo) (*kernel.HostDevice, string, error) {
	m := &kernel.HostDevice{Device: c.Device, Name: a.IfName}
	if m.Device == "" {
		m.Device = a.IfName
	}
	m.OwnerTag = kernel.HostDeviceTag(a.Owner, m.Device)
	if in == nil {
		return m, want.Mac, nil
	}
	if want.Mac != "" && want.Mac != in.MAC {
		return nil, "", fmt.Errorf("interface %s in the container has the hardware address %s, and prevResult has %s", in.Name, in.MAC, want.Mac)
	}
	tag, _, ok := kernel.ParseHostDeviceTag(in.Alias)
	if ok && owns(a, tag) || !ok && c.movedByReference(in) {
		m.OwnerTag = in.Alias
	}
	return m, in.MAC, nil
}

func (c *hostDevice) onHost(a *plugin.Attachment) (*kernel.LinkInfo, error) {
	switch {
	case c.Device != "":
		l, err := a.Facts.Link(kernel.Host, c.Device)
		if errors.Is(err, os.ErrNotExist) {
			return nil, c.errNoDevice(a)
		}
		return l, err
	case c.HWAddr != "":
		return c.byHWAddr(a)
	case c.KernelPath != "":
		return c.bySysfs(a, "kernelpath", filepath.Clean(c.KernelPath))
	}
	return c.bySysfs(a, c.pciKey, c.sysPath("bus/pci/devices", c.PCIBusID), c.sysPath("bus/auxiliary/devices", c.PCIBusID))
}

// errNoDevice returns an error that lists the host's devices.
func (c *hostDevice) errNoDevice(a *plugin.Attachment) error {
	links, err := a.Facts.Links(kernel.Host)
	if err != nil {
		return err
	}
	var names []string
	for _, l := range links {
		if l.Name != "lo" && l.Group != kernel.LinkGroup && len(names) < 10 {
			names = append(names, l.Name)
		}
	}
	err = cni.Invalid(c.Raw, "device", "no such device on the host")
	if len(names) > 0 {
		err = fmt.Errorf("%w (the host has %s)", err, strings.Join(names, ", "))
	}
	return err
}

func (c *hostDevice) byHWAddr(a *plugin.Attachment) (*kernel.LinkInfo, error) {
	links, err := a.Facts.Links(kernel.Host)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if l.MAC == c.HWAddr {
			return l, nil
		}
	}
	return nil, cni.Invalid(c.Raw, "hwaddr", "no device on the host has this address")
}

func (c *hostDevice) sysPath(parts ...string) string {
	return filepath.Join(append([]string{c.sys}, parts...)...)
}

// bySysfs returns the network interface of a device in sysfs. It is directly below the device or, for virtio, one level
// deeper.
func (c *hostDevice) bySysfs(a *plugin.Attachment, key string, devices ...string) (*kernel.LinkInfo, error) {
	for _, device := range devices {
		for _, pattern := range []string{"net", "virtio*/net"} {
			names, err := a.Facts.Glob(filepath.Join(device, pattern, "*"))
			if err != nil {
				return nil, err
			}
			if len(names) > 0 {
				return a.Facts.Link(kernel.Host, filepath.Base(names[0]))
			}
		}
	}
	return nil, cni.Invalid(c.Raw, key, "no such device, or it has no network interface on the host")
}

// userSpaceDriver returns the driver of a PCI device that a user-space program (DPDK) uses, or "". The kernel has no
// interface for such a device.
func (c *hostDevice) userSpaceDriver(a *plugin.Attachment) string {
	if c.PCIBusID == "" {
		return ""
	}
	driver, err := a.Facts.Readlink(c.sysPath("bus/pci/devices", c.PCIBusID, "driver"))
	if err != nil {
		return ""
	}
	switch d := filepath.Base(driver); d {
	case "vfio-pci", "uio_pci_generic", "igb_uio":
		return d
	}
	return ""
}
