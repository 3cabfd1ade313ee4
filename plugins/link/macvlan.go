package link

import (
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Macvlan returns the plugin that gives a container its own hardware address on a host interface.
func Macvlan() plugin.Plugin {
	return plugin.Plugin{
		Name: "macvlan", About: "gives a container its own hardware address on a host interface",
		New: func() plugin.Config { return &macvlan{} },
	}
}

type macvlan struct {
	stacked
	Mode       string `json:"mode"`
	OwnMAC     string `json:"mac"`
	BcQueueLen int    `json:"bcqueuelen"`

	mac string
}

func (c *macvlan) Validate(a *plugin.Attachment) (err error) {
	if err = c.stacked.Validate(a); err != nil {
		return err
	}
	if c.Mode, err = c.mode("macvlan", c.Mode, "bridge"); err != nil {
		return err
	}
	if c.BcQueueLen < 0 || int64(c.BcQueueLen) > 1<<32-1 {
		return cni.Invalid(c.Raw, "bcqueuelen", "want 0 (the kernel's choice, 1000) to 4294967295 frames")
	}
	c.mac, err = c.MAC(a, c.OwnMAC)
	return err
}

func (c *macvlan) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	parent, err := c.parent(a)
	if err != nil {
		return nil, err
	}
	s := c.child(a, "macvlan", parent)
	s.Mode, s.QueueLen, s.MAC = c.Mode, c.BcQueueLen, c.mac
	if s.MAC == "" {
		s.MAC = a.ContainerMAC()
	}
	if s.Mode == "passthru" { // it always has its parent's address
		s.MAC = parent.MAC
	}
	c.result(a, r, s.MAC)
	return kernel.Objects{s}, nil
}

// Find needs neither the parent nor a valid configuration.
func (c *macvlan) Find(a *plugin.Attachment) (kernel.Objects, error) { return inside(a, "macvlan") }
