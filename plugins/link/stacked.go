package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// stacked is the common part of the plugins that create the container's interface on top of a parent.
type stacked struct {
	plugin.Conf
	Master          string `json:"master"`
	MTU             int    `json:"mtu"`
	LinkInContainer bool   `json:"linkInContainer"`
}

// side returns where the parent is.
func (c *stacked) side() kernel.Side {
	if c.LinkInContainer {
		return kernel.Container
	}
	return kernel.Host
}

func (c *stacked) Validate(a *plugin.Attachment) error {
	if c.MTU < 0 || c.MTU > 65535 {
		return cni.Invalid(c.Raw, "mtu", "want 0 (the parent's) to 65535 bytes, and at most the parent's")
	}
	if c.Master == "" {
		return nil
	}
	if err := cni.ValidateInterfaceName(c.Master); err != nil && !isAltName(c.Master) {
		return cni.Invalid(c.Raw, "master", err.Error())
	}
	if c.LinkInContainer && c.Master == a.IfName {
		return cni.Invalid(c.Raw, "master", "is also the name of the container's new interface: they must differ")
	}
	return nil
}

// isAltName reports whether a name is too long for an interface and short enough for an alternative name: "altname" of
// ip-link(8), up to 127 bytes.
func isAltName(name string) bool { return len(name) >= 16 && len(name) < 128 }

// parent returns the link in master, or else that of the default route.
func (c *stacked) parent(a *plugin.Attachment) (*kernel.LinkInfo, error) {
	name := c.Master
	if name == "" && c.checked(a) {
		name = c.currentParent(a)
	}
	if name == "" {
		var err error
		name, err = a.Facts.DefaultLink(c.side())
		if errors.Is(err, os.ErrNotExist) {
			return nil, cni.Invalid(c.Raw, "master", fmt.Sprintf("missing, and the %s has no default route whose interface could be used", c.side()))
		}
		if err != nil {
			return nil, err
		}
	}
	l, err := a.Facts.Link(c.side(), name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, cni.Invalid(c.Raw, "master", fmt.Sprintf("no interface %s in the %s", name, c.side()))
	case err != nil:
		return nil, err
	case c.MTU > l.MTU:
		return nil, cni.Invalid(c.Raw, "mtu", fmt.Sprintf("more than the %d bytes of %s", l.MTU, name))
	}
	return l, nil
}

// checked reports whether prevResult is this attachment's own, as in CHECK.
func (c *stacked) checked(a *plugin.Attachment) bool {
	return c.Prev != nil && slices.ContainsFunc(c.Prev.Interfaces, func(i cni.Interface) bool {
		return i.Name == a.IfName && i.Sandbox != ""
	})
}

// currentParent returns the name of the existing interface's parent, or "" if it cannot be seen. The parent chosen by
// ADD counts, even if the default route has changed since.
func (c *stacked) currentParent(a *plugin.Attachment) string {
	own, err := a.Facts.Link(kernel.Container, a.IfName)
	if err != nil {
		return ""
	}
	links, err := a.Facts.Links(c.side())
	if err != nil {
		return ""
	}
	for _, l := range links {
		if l.Index == own.Peer {
			return l.Name
		}
	}
	return ""
}

// child returns the interface on a parent; the plugin adds what is specific to its type.
func (c *stacked) child(a *plugin.Attachment, typ string, parent *kernel.LinkInfo) *kernel.StackedLink {
	return &kernel.StackedLink{Type: typ, Name: a.IfName, Parent: parent.Name, ParentSide: c.side(), MTU: c.MTU, OwnerTag: a.Tag()}
}

// result adds the attachment's only interface to the result.
func (c *stacked) result(a *plugin.Attachment, r *cni.Result, mac string) {
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: a.IfName, Mac: mac, Sandbox: a.Netns})
}

// Addressed returns addresses and routes. Without IPAM the interface is layer 2 only, and only set up.
func (c *stacked) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	return append(plugin.Interface{Name: a.IfName, RetryWhileTaken: true}.Objects(r), plugin.Routes(a.IfName, r)...), nil
}

// Ready reports whether the parent exists. A parent in a container is not known yet.
func (c *stacked) Ready(_ context.Context, a *plugin.Attachment) error {
	if c.LinkInContainer {
		return nil
	}
	if _, err := c.parent(a); err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "%w", err)
	}
	return nil
}

// inside returns the container's interface of a type by its name, for DEL without a record.
func inside(a *plugin.Attachment, typ string) (kernel.Objects, error) {
	return kernel.Objects{&kernel.StackedLink{Type: typ, Name: a.IfName, OwnerTag: a.Tag()}}, nil
}

// mode checks a mode and returns it, or the type's default for "".
func (c *stacked) mode(typ, asked, usual string) (string, error) {
	if asked == "" {
		return usual, nil
	}
	if _, ok := kernel.StackedLinkModes(typ)[asked]; !ok {
		return "", cni.Invalid(c.Raw, "mode", modesOf(typ))
	}
	return asked, nil
}

func modesOf(typ string) string {
	if typ == "macvlan" {
		return "want bridge, private, vepa or passthru"
	}
	return "want l2, l3 or l3s"
}
