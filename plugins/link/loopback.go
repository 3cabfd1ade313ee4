package link

import (
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Loopback returns the plugin that brings the container's lo up. It has no keys.
func Loopback() plugin.Plugin {
	return plugin.Plugin{
		Name: "loopback", About: "brings up the container's loopback interface", IfName: "lo",
		New: func() plugin.Config { return &loopback{} },
	}
}

type loopback struct {
	plugin.Conf
	v6 bool // lo has an IPv6 address
}

func (c *loopback) Links(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	off, err := a.Facts.Sysctl(kernel.Container, "net/ipv6/conf/lo/disable_ipv6") // a runtime may create the namespace without IPv6
	c.v6 = err == nil && off != "1"
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: "lo", Mac: "00:00:00:00:00:00", Sandbox: a.Netns})
	return kernel.Objects{&kernel.Up{In: kernel.Container, Link: "lo"}}, nil
}

func (c *loopback) Addressed(_ *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	if c.Prev != nil {
		*r = *c.Prev.Clone()
		return nil, nil
	}
	lo := 0
	r.IPs = nil
	for _, ip := range []string{"127.0.0.1/8", "::1/128"} {
		if p := netip.MustParsePrefix(ip); p.Addr().Is4() || c.v6 {
			r.IPs = append(r.IPs, cni.IP{Interface: &lo, Address: p})
		}
	}
	return nil, nil
}
