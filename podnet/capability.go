package podnet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// A rate without a burst gets one of so long at the rate, within these bounds: one
// whole packet of 64 KiB has to fit, and the reference's plugin takes no burst for
// an error.
const (
	burstPart = 10      // of a second
	minBurst  = 1 << 21 // bits
	maxBurst  = 1<<31 - 1
)

// ErrUnsupported is in the error that a pod asks for what no plugin of a network
// declares as its capability.
var ErrUnsupported = errors.New("no plugin of the network declares the capability")

// asked is something that a pod asks a network for. A hint goes where somebody
// declares it, and nobody misses it elsewhere.
type asked struct {
	capability string
	value      any
	hint       bool
}

// asks are what a pod asks a network for, by the names of the capabilities.
func (n *Network) asks() (out []asked) {
	put := func(capability string, value any, present, hint bool) {
		if present {
			out = append(out, asked{capability, value, hint})
		}
	}
	ports := n.hostPorts()
	put("portMappings", ports, len(ports) > 0, false)
	b := n.Bandwidth.complete()
	put("bandwidth", b, b != Bandwidth{}, false)
	put("ipRanges", n.IPRanges, len(n.IPRanges) > 0, false)
	put("ips", n.IPs, len(n.IPs) > 0, false)
	put("mac", n.MAC, n.MAC != "", false)
	put("infinibandGUID", n.InfinibandGUID, n.InfinibandGUID != "", false)
	put("deviceID", n.DeviceID, n.DeviceID != "", false)
	put("dns", n.dns(), n.DNS != nil && !n.DNS.IsZero(), true)
	put("aliases", n.Aliases, len(n.Aliases) > 0, true)
	put("cgroupPath", n.CgroupPath, n.CgroupPath != "", true)
	return out
}

// hostPorts are the port mappings that have a host port; kubelet lists the others, too.
func (n *Network) hostPorts() (out []PortMapping) {
	for _, p := range n.Ports {
		if p.HostPort == 0 {
			continue
		}
		if p.Protocol = strings.ToLower(p.Protocol); p.Protocol == "" {
			p.Protocol = "tcp"
		}
		out = append(out, p)
	}
	return out
}

// complete gives each rate a burst.
func (b *Bandwidth) complete() Bandwidth {
	if b == nil {
		return Bandwidth{}
	}
	c := *b
	if c.IngressRate > 0 && c.IngressBurst == 0 {
		c.IngressBurst = burst(c.IngressRate)
	}
	if c.EgressRate > 0 && c.EgressBurst == 0 {
		c.EgressBurst = burst(c.EgressRate)
	}
	return c
}

func burst(rate uint64) uint64 { return min(max(rate/burstPart, minBurst), maxBurst) }

// dns has other words than a result's.
func (n *Network) dns() map[string][]string {
	out := map[string][]string{}
	if n.DNS == nil {
		return out
	}
	for key, list := range map[string][]string{"servers": n.DNS.Nameservers, "searches": n.DNS.Search, "options": n.DNS.Options} {
		if len(list) > 0 {
			out[key] = list
		}
	}
	return out
}

// capabilityArgs are what the pod asks for and the network can do. What it cannot
// is in the error, all of it.
func (n *Network) capabilityArgs(list *libcni.NetworkConfigList) (map[string]any, error) {
	declared := capabilities(list)
	args := map[string]any{}
	var missing []string
	for _, a := range n.asks() {
		switch {
		case slices.Contains(declared, a.capability):
			args[a.capability] = a.value
		case !a.hint:
			missing = append(missing, fmt.Sprintf("%q", a.capability))
		}
	}
	if len(missing) == 0 {
		return args, nil
	}
	return args, cni.Errorf(cni.CodeUnsupportedField, "network %s: the pod asks for %s: %w: write \"capabilities\": {%s: true} into that plugin of its list which can do it",
		list.Name, strings.Join(missing, ", "), ErrUnsupported, missing[0])
}

// capabilities are those that the plugins of a network declare.
func capabilities(list *libcni.NetworkConfigList) (out []string) {
	for _, p := range list.Plugins {
		for c, enabled := range p.Network.Capabilities {
			if enabled && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	slices.Sort(out)
	return out
}
