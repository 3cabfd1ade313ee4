package link

import (
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Dummy returns the plugin that creates a dummy interface. It has no keys.
func Dummy() plugin.Plugin {
	return plugin.Plugin{
		Name: "dummy", About: "creates a dummy interface in a container, to hold addresses",
		New: func() plugin.Config { return &dummy{} },
	}
}

type dummy struct{ plugin.Conf }

func (c *dummy) Validate(*plugin.Attachment) error {
	if c.IPAM.Type == "" {
		return cni.Invalid(c.Raw, "ipam", "missing: a dummy interface needs addresses")
	}
	return nil
}

func (c *dummy) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	d := &kernel.Dummy{Name: a.IfName, MAC: a.ContainerMAC(), OwnerTag: a.Tag()}
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: d.Name, Mac: d.MAC, Sandbox: a.Netns})
	return kernel.Objects{d}, nil
}

func (c *dummy) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	c.UseDNS(r)
	return append(plugin.Interface{Name: a.IfName}.Objects(r), plugin.Routes(a.IfName, r)...), nil
}
