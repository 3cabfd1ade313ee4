package chain

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// Bandwidth returns the plugin that limits a container's traffic in both directions.
func Bandwidth() plugin.Plugin {
	return plugin.Plugin{
		Name: "bandwidth", About: "limits a container's traffic in both directions with token buckets on the host's end of its link", Chained: true,
		New: func() plugin.Config { return &bandwidth{} },
	}
}

type bandwidth struct {
	plugin.Conf
	rates
	EgressAt      string `json:"egressAt"` // "host" (default) or "container"
	RuntimeConfig struct {
		Bandwidth *rates `json:"bandwidth"`
	} `json:"runtimeConfig"`
}

// rates are in bits per second, bursts in bits. Ingress is what the container receives, egress what it sends.
type rates struct {
	IngressRate     uint64         `json:"ingressRate"`
	IngressBurst    uint64         `json:"ingressBurst"`
	EgressRate      uint64         `json:"egressRate"`
	EgressBurst     uint64         `json:"egressBurst"`
	ShapedSubnets   []netip.Prefix `json:"shapedSubnets"`
	UnshapedSubnets []netip.Prefix `json:"unshapedSubnets"`
}

// Limits of the kernel's counters, and of useful rates.
const (
	minRate  = 8               // bits per second: one byte
	maxRate  = 1 << 43         // bits per second, 8.8 Tbit/s: faster than any link
	maxBurst = 8 * (1<<32 - 1) // bits
)

func (c *bandwidth) Validate(*plugin.Attachment) error {
	at := ""
	if b := c.RuntimeConfig.Bandwidth; b != nil && c.IngressRate+c.IngressBurst+c.EgressRate+c.EgressBurst == 0 {
		at = "runtimeConfig.bandwidth."
		if len(b.ShapedSubnets)+len(b.UnshapedSubnets) == 0 {
			b.ShapedSubnets, b.UnshapedSubnets = c.ShapedSubnets, c.UnshapedSubnets
		}
		c.rates = *b
	}
	for _, d := range []struct {
		name        string
		rate, burst uint64
	}{{"ingress", c.IngressRate, c.IngressBurst}, {"egress", c.EgressRate, c.EgressBurst}} {
		switch {
		case d.rate == 0 && d.burst > 0:
			return cni.Invalid(c.Raw, at+d.name+"Burst", fmt.Sprintf("a burst needs a rate: set %sRate too, in bits per second", d.name))
		case d.rate > 0 && d.rate < minRate || d.rate > maxRate:
			return cni.Invalid(c.Raw, at+d.name+"Rate", fmt.Sprintf("want 0 (no limit) or %d to %d bits per second", minRate, uint64(maxRate)))
		case d.burst > maxBurst:
			return cni.Invalid(c.Raw, at+d.name+"Burst", fmt.Sprintf("want at most %d bits: the kernel's bucket holds less than 4 GiB", uint64(maxBurst)))
		}
	}
	for key, list := range map[string][]netip.Prefix{"shapedSubnets": c.ShapedSubnets, "unshapedSubnets": c.UnshapedSubnets} {
		for i, p := range list {
			if !p.IsValid() { // "" or null, which would match everything
				return cni.Invalid(c.Raw, fmt.Sprintf("%s%s[%d]", at, key, i), "want a subnet, like 10.1.0.0/16 or fd00::/64")
			}
		}
	}
	if len(c.ShapedSubnets) > 0 && len(c.UnshapedSubnets) > 0 {
		return cni.Invalid(c.Raw, at+"unshapedSubnets", "cannot be combined with shapedSubnets: set one of them")
	}
	if c.EgressAt != "" && c.EgressAt != "host" && c.EgressAt != "container" {
		return cni.Invalid(c.Raw, "egressAt", `want "host" (the default: the container cannot change it) or "container" (one link less; only for containers without CAP_NET_ADMIN)`)
	}
	return nil
}

func (c *bandwidth) Addressed(a *plugin.Attachment, r *cni.Result) (list kernel.Objects, err error) {
	if c.IngressRate == 0 && c.EgressRate == 0 {
		return nil, nil
	}
	end, err := hostEnd(c.Type, a, r)
	if err != nil {
		return nil, err
	}
	if c.IngressRate > 0 {
		list = append(list, c.shape(kernel.Host, end.Name, end.MTU, c.IngressRate, c.IngressBurst, true)...)
	}
	switch {
	case c.EgressRate == 0:
		return list, nil
	case c.EgressAt == "container":
		return append(list, c.shape(kernel.Container, a.IfName, end.MTU, c.EgressRate, c.EgressBurst, false)...), nil
	}
	ifb := &kernel.IFB{Name: a.LinkName("bwp"), MAC: a.MAC("ifb"), MTU: end.MTU, OwnerTag: a.Tag()}
	r.Interfaces = append(r.Interfaces, cni.Interface{Name: ifb.Name, Mac: ifb.MAC})
	list = append(list, ifb, &kernel.Up{Link: ifb.Name})
	list = append(list, c.shape(kernel.Host, ifb.Name, end.MTU, c.EgressRate, c.EgressBurst, false)...)
	return append(list,
		&kernel.Qdisc{Link: end.Name, Type: "ingress"},
		&kernel.TCFilter{Link: end.Name, Parent: kernel.IngressHandle, Redirect: ifb.Name, Priority: 1}), nil
}

// Find returns the link that DEL without a record looks for.
func (c *bandwidth) Find(a *plugin.Attachment) (kernel.Objects, error) {
	return kernel.Objects{&kernel.IFB{Name: a.LinkName("bwp"), OwnerTag: a.Tag()}}, nil
}

// ReferenceObjects returns the reference plugin's link.
func (c *bandwidth) ReferenceObjects(a *plugin.Attachment) kernel.Objects {
	return kernel.Objects{&kernel.IFB{Name: ruleset.ReferenceLink(a)}}
}

// shape limits what leaves a link: everything or, with subnets, only packets from (or to) shapedSubnets, or only those
// not from (or to) unshapedSubnets.
func (c *bandwidth) shape(in kernel.Side, link string, mtu int, rate, burst uint64, from bool) kernel.Objects {
	q := &kernel.Qdisc{In: in, Link: link, Rate: rate / 8, Burst: bucket(rate/8, burst/8, mtu)}
	if len(c.ShapedSubnets)+len(c.UnshapedSubnets) == 0 {
		q.Type, q.Limit = "tbf", queueLimit(q.Rate, q.Burst)
		return kernel.Objects{q}
	}
	q.Type, q.Default = "htb", len(c.UnshapedSubnets) > 0
	list := kernel.Objects{q}
	class := kernel.ShapedClass
	if q.Default {
		class = kernel.RootHandle
	}
	for i, p := range append(c.ShapedSubnets, c.UnshapedSubnets...) {
		list = append(list, &kernel.TCFilter{In: in, Link: link, Parent: kernel.RootHandle, Prefix: p, From: from, Class: class, Priority: uint16(1 + i)})
	}
	return list
}

const (
	frameHeader = 18                   // bytes: ethernet with a VLAN tag
	burstPart   = 100                  // the default burst is 1/100 s at the rate
	burstFrames = 10                   // and at least this many full frames
	latencyPart = 40                   // 1/40 s (25 ms) at the rate may queue, as in the reference plugin
	maxCount    = uint64(1<<32 - 1000) // largest number of bytes the kernel can count
)

// bucket returns the burst in bytes. It must hold the largest frame, which otherwise would never leave.
func bucket(rate, burst uint64, mtu int) uint32 {
	frame := uint64(mtu + frameHeader)
	if burst == 0 {
		burst = max(rate/burstPart, burstFrames*frame)
	}
	return uint32(min(max(burst, frame), maxCount))
}

// queueLimit returns how many bytes may queue before the kernel drops more.
func queueLimit(rate uint64, burst uint32) uint32 {
	return uint32(min(rate/latencyPart+uint64(burst), maxCount))
}

// hostEnd returns the host's end of the container's link. An earlier plugin put it in the result; a result without
// interfaces (before 0.3.0) leaves it to the kernel.
func hostEnd(who string, a *plugin.Attachment, r *cni.Result) (*kernel.LinkInfo, error) {
	in, err := a.Facts.Link(kernel.Container, a.IfName)
	if err != nil {
		return nil, fmt.Errorf("in the container: %w", err)
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		l, err := a.Facts.Link(kernel.Host, i.Name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.IsPair() && (l.Index == in.Peer || in.Peer == 0) {
			return l, nil
		}
	}
	if l, err := a.Facts.OtherEnd(in); !errors.Is(err, os.ErrNotExist) {
		return l, err
	}
	return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "%s needs a container's link with an end on the host (bridge, ptp): %s is %s, and prevResult lists no other end of it",
		who, a.IfName, kindOf(in))
}

func kindOf(l *kernel.LinkInfo) string {
	if l.Kind == "" {
		return "hardware"
	}
	return "of kind " + l.Kind
}
