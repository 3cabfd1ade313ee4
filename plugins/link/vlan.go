package link

import (
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// VLAN returns the plugin that creates a VLAN interface on a host interface.
func VLAN() plugin.Plugin {
	return plugin.Plugin{
		Name: "vlan", About: "gives a container a VLAN on a host interface",
		New: func() plugin.Config { return &vlan{} },
	}
}

type vlan struct {
	stacked
	ID int `json:"vlanId"`
}

func (c *vlan) Validate(a *plugin.Attachment) error {
	switch {
	case c.Master == "":
		return cni.Invalid(c.Raw, "master", "missing: want the interface to create the VLAN on")
	case c.ID < 0 || c.ID > maxVLAN:
		return cni.Invalid(c.Raw, "vlanId", "want a VLAN ID from 1 to 4094, or 0 for priority-tagged frames")
	}
	return c.stacked.Validate(a)
}

func (c *vlan) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	parent, err := c.parent(a)
	if err != nil {
		return nil, err
	}
	if !parent.Up {
		return nil, cni.Invalid(c.Raw, "master", parent.Name+" is down: a VLAN works only while its parent is up")
	}
	s := c.child(a, "vlan", parent)
	s.VLAN = c.ID
	c.result(a, r, parent.MAC)
	return kernel.Objects{s}, nil
}

// Find needs neither the parent nor a valid configuration.
func (c *vlan) Find(a *plugin.Attachment) (kernel.Objects, error) { return inside(a, "vlan") }
