package link

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// stacked is what plugins share that put the container's interface on top of
// another one.
type stacked struct {
	plugin.Conf
	Master          string `json:"master"`
	MTU             int    `json:"mtu"`
	LinkInContainer bool   `json:"linkInContainer"`
}

// side is where the parent is.
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
	if err := cni.ValidateInterfaceName(c.Master); err != nil {
		return cni.Invalid(c.Raw, "master", err.Error())
	}
	if c.LinkInContainer && c.Master == a.IfName {
		return cni.Invalid(c.Raw, "master", "the container's interface is to have this name itself")
	}
	return nil
}

// parent is the link that master names, or that of the default route.
func (c *stacked) parent(a *plugin.Attachment) (*kernel.LinkInfo, error) {
	name := c.Master
	if name == "" && c.checked(a) {
		name = c.present(a)
	}
	if name == "" {
		var err error
		name, err = a.Facts.DefaultLink(c.side())
		if errors.Is(err, os.ErrNotExist) {
			return nil, cni.Invalid(c.Raw, "master", fmt.Sprintf("missing, and the %s has no default route whose interface could be taken", c.side()))
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

// checked tells whether prevResult is that of this very attachment: in CHECK.
func (c *stacked) checked(a *plugin.Attachment) bool {
	return c.Prev != nil && slices.ContainsFunc(c.Prev.Interfaces, func(i cni.Interface) bool {
		return i.Name == a.IfName && i.Sandbox != ""
	})
}

// present is the parent that the interface has: what was found for it when it
// was made counts, another default route by now does not. "": none is to be seen.
func (c *stacked) present(a *plugin.Attachment) string {
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

// sub is the interface on a parent; the plugin adds what its type has besides.
func (c *stacked) sub(a *plugin.Attachment, typ string, parent *kernel.LinkInfo) *kernel.StackedLink {
	return &kernel.StackedLink{Type: typ, Name: a.IfName, Parent: parent.Name, ParentSide: c.side(), MTU: c.MTU, OwnerTag: a.Tag()}
}

// result adds the interface, the attachment's only one.
func (c *stacked) result(a *plugin.Attachment, r *cni.Result, mac string) {
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: a.IfName, Mac: mac, Sandbox: a.Netns})
}

// Addressed states addresses and routes; without IPAM the interface is layer 2
// only, and just brought up.
func (c *stacked) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	return append(plugin.Interface{Name: a.IfName, RetryWhileTaken: true}.Objects(r), plugin.Routes(a.IfName, r)...), nil
}

// Ready tells whether there is a parent; one in a container is not known yet.
func (c *stacked) Ready(a *plugin.Attachment) error {
	if c.LinkInContainer {
		return nil
	}
	if _, err := c.parent(a); err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "%w", err)
	}
	return nil
}

// inside names, for DEL without a record, the container's interface of a type:
// whatever it was made of, it goes by its name.
func inside(a *plugin.Attachment, typ string) (kernel.Objects, error) {
	return kernel.Objects{&kernel.StackedLink{Type: typ, Name: a.IfName, OwnerTag: a.Tag()}}, nil
}

// mode is a mode that a type has, or the one it has without a word.
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
