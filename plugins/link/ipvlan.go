package link

import (
	"context"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// IPvlan returns the plugin that shares a host interface and its hardware address with containers.
func IPvlan() plugin.Plugin {
	return plugin.Plugin{
		Name: "ipvlan", About: "shares a host interface and its hardware address with containers, by IP address",
		New: func() plugin.Config { return &ipvlan{} },
	}
}

type ipvlan struct {
	stacked
	Mode string `json:"mode"`
}

func (c *ipvlan) Validate(a *plugin.Attachment) (err error) {
	// An earlier plugin of the list may have created the parent.
	if c.Master == "" && c.Prev != nil && !c.checked(a) {
		if len(c.Prev.Interfaces) != 1 || c.Prev.Interfaces[0].Name == "" {
			return cni.Invalid(c.Raw, "master", "missing, and prevResult does not have exactly one interface to use instead")
		}
		c.Master = c.Prev.Interfaces[0].Name
	}
	if err = c.stacked.Validate(a); err != nil {
		return err
	}
	c.Mode, err = c.mode("ipvlan", c.Mode, "l2")
	return err
}

func (c *ipvlan) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	parent, err := c.parent(a)
	if err != nil {
		return nil, err
	}
	s := c.child(a, "ipvlan", parent)
	s.Mode = c.Mode
	c.result(a, r, parent.MAC)
	return kernel.Objects{s}, nil
}

// Addressed uses the earlier plugin's addresses if there is no IPAM.
func (c *ipvlan) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	if c.IPAM.Type == "" && c.Prev != nil && !c.checked(a) {
		prev, own := c.Prev.Clone(), 0
		r.IPs, r.Routes, r.DNS = prev.IPs, prev.Routes, prev.DNS
		for i := range r.IPs {
			r.IPs[i].Interface = &own
		}
	}
	return c.stacked.Addressed(a, r)
}

// Ready does not look for a parent that the plugin before this one in the list may create. STATUS has no prevResult that
// says so, but such an ipvlan needs neither master nor ipam.
func (c *ipvlan) Ready(ctx context.Context, a *plugin.Attachment) error {
	if c.Master == "" && c.IPAM.Type == "" {
		return nil
	}
	return c.stacked.Ready(ctx, a)
}

// Find needs neither the parent nor a valid configuration.
func (c *ipvlan) Find(a *plugin.Attachment) (kernel.Objects, error) { return inside(a, "ipvlan") }
