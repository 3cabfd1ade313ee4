// Declarative is an example of a chained plugin with package plugin. It declares the objects that should exist for a
// container that routes packets to subnets behind it. Package plugin implements ADD with undo, CHECK, DEL and GC.
//
//	{"type": "declarative", "behind": ["10.9.0.0/24"]}
package main

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

func main() {
	p := plugin.Plugin{
		Name: "declarative", About: "Routes subnets behind a container to it.", Chained: true,
		New: func() plugin.Config { return &router{} },
	}
	skel.PluginMain(p.Skel(plugin.Env{}))
}

// router is the configuration: the keys of every plugin, and the subnets behind the container.
type router struct {
	plugin.Conf
	Behind []netip.Prefix `json:"behind"`
}

// Validate rejects an invalid configuration before anything changes. The error names the key.
func (c *router) Validate(*plugin.Attachment) error {
	if len(c.Behind) == 0 {
		return cni.Invalid(c.Raw, "behind", "want at least one subnet")
	}
	for i, p := range c.Behind {
		if p != p.Masked() {
			return cni.Invalid(c.Raw, fmt.Sprintf("behind[%d]", i), "want a subnet, like "+p.Masked().String())
		}
	}
	return nil
}

// Addressed returns the objects that should exist: forwarding in the container, and on the host a route to each subnet
// through the container's address.
func (c *router) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	list := kernel.Objects{
		&kernel.Sysctl{In: kernel.Container, Key: "net/ipv4/ip_forward", Value: "1"},
		&kernel.Sysctl{In: kernel.Container, Key: "net/ipv6/conf/all/forwarding", Value: "1", Optional: true},
	}
	for i, subnet := range c.Behind {
		via, ok := sameFamily(r, subnet.Addr().Is4())
		if !ok {
			return nil, cni.Invalid(c.Raw, fmt.Sprintf("behind[%d]", i), "the container has no address of this family")
		}
		link, err := a.Facts.LinkTo(via)
		if err != nil {
			return nil, err
		}
		list = append(list, &kernel.Route{Dst: subnet, Via: via, Link: link})
	}
	return list, nil
}

func sameFamily(r *cni.Result, v4 bool) (netip.Addr, bool) {
	for _, ip := range r.IPs {
		if ip.Address.Addr().Is4() == v4 {
			return ip.Address.Addr(), true
		}
	}
	return netip.Addr{}, false
}
