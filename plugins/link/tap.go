package link

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Tap returns the plugin that creates a tap interface, whose other end is a program.
func Tap() plugin.Plugin {
	return plugin.Plugin{
		Name: "tap", About: "creates a tap interface, whose other end is a program such as a virtual machine",
		New: func() plugin.Config { return &tap{} },
	}
}

type tap struct {
	plugin.Conf
	MultiQueue     bool   `json:"multiQueue"`
	MTU            int    `json:"mtu"`
	Owner          *int   `json:"owner"`
	Group          *int   `json:"group"`
	SELinuxContext string `json:"selinuxContext"`
	Bridge         string `json:"bridge"`
	OwnMAC         string `json:"mac"`

	mac string
}

func (c *tap) Validate(a *plugin.Attachment) (err error) {
	switch {
	case c.MTU < 0 || c.MTU > 65521 || c.MTU > 0 && c.MTU < 68:
		return cni.Invalid(c.Raw, "mtu", "want 0 (the kernel's choice, 1500) or 68 to 65521 bytes")
	case c.Owner != nil && !isID(*c.Owner):
		return cni.Invalid(c.Raw, "owner", "want a user ID from 0 to 4294967294")
	case c.Group != nil && !isID(*c.Group):
		return cni.Invalid(c.Raw, "group", "want a group ID from 0 to 4294967294")
	}
	if c.Bridge != "" {
		if err := cni.ValidateInterfaceName(c.Bridge); err != nil {
			return cni.Invalid(c.Raw, "bridge", err.Error())
		}
	}
	c.mac, err = c.MAC(a, c.OwnMAC)
	return err
}

// isID reports whether a number can be a user or group ID. The largest 32-bit number is -1 to the kernel and means
// none.
func isID(n int) bool { return n >= 0 && int64(n) < 1<<32-1 }

// The kernel lists selinuxfs in fileSystems if SELinux is enabled, also where the file system is not mounted.
const (
	fileSystems = "/proc/filesystems"
	selinuxFS   = "\tselinuxfs\n"
)

// checkHost rejects settings that this host or container does not support.
func (c *tap) checkHost(a *plugin.Attachment) error {
	if c.SELinuxContext != "" {
		if known, err := a.Facts.ReadFile(fileSystems); err != nil || !strings.Contains(string(known), selinuxFS) {
			return cni.Invalid(c.Raw, "selinuxContext", "this host has no SELinux")
		}
	}
	if c.Bridge == "" {
		return nil
	}
	l, err := a.Facts.Link(kernel.Container, c.Bridge)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return cni.Invalid(c.Raw, "bridge", "no such bridge in the container")
	case err != nil:
		return err
	case l.Kind != "bridge":
		return cni.Invalid(c.Raw, "bridge", "is not a bridge")
	}
	c.Bridge = cmp.Or(l.Name, c.Bridge) // the configuration may have an alternative name
	return nil
}

func (c *tap) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	if err := c.checkHost(a); err != nil {
		return nil, err
	}
	t := &kernel.Tap{
		Name: a.IfName, MAC: c.mac, MTU: c.MTU, MultiQueue: c.MultiQueue,
		UID: c.Owner, GID: c.Group, Context: c.SELinuxContext, Master: c.Bridge, OwnerTag: a.Tag(),
	}
	if t.MAC == "" {
		t.MAC = a.ContainerMAC()
	}
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: t.Name, Mac: t.MAC, Sandbox: a.Netns})
	return kernel.Objects{t}, nil
}

func (c *tap) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	return append(plugin.Interface{Name: a.IfName}.Objects(r), plugin.Routes(a.IfName, r)...), nil
}

// Find needs no valid configuration, and no bridge.
func (c *tap) Find(a *plugin.Attachment) (kernel.Objects, error) {
	return kernel.Objects{&kernel.Tap{Name: a.IfName, OwnerTag: a.Tag()}}, nil
}

// Ready reports whether the kernel supports tap interfaces.
func (c *tap) Ready(_ context.Context, a *plugin.Attachment) error {
	const device = "/dev/net/tun"
	if found, err := a.Facts.Glob(device); err != nil || len(found) == 0 {
		return cni.Errorf(cni.CodePluginNotAvailable, "tap needs the kernel module tun, which creates %s", device)
	}
	return nil
}
