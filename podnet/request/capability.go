package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// A rate without a burst gets a burst of this duration at the rate, within these bounds. A whole packet of 64 KiB has
// to fit, and the reference plugin rejects a rate without a burst.
const (
	burstPart = 10      // fraction of a second
	minBurst  = 1 << 21 // bits
	maxBurst  = 1<<31 - 1
)

// ChainType is the type of the plugin that has a whole list of plugins inside.
const ChainType = "fairlead-chain"

// ErrUnsupported is the error for a setting of a pod that no plugin of the network declares as a capability.
var ErrUnsupported = errors.New("no plugin of the network declares the capability")

// asked is a setting that a pod requests from a network. A hint is passed to the plugins that declare it, and is
// ignored without an error if none does.
type asked struct {
	capability string
	value      any
	hint       bool
}

// asks returns what a pod requests from a network, by capability name.
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
	put("io.kubernetes.cri.pod-annotations", map[string]string{Prefix + "labels": n.Labels}, n.Labels != "", true)
	put("cgroupPath", n.CgroupPath, n.CgroupPath != "", true)
	return out
}

// WithCapabilities returns a change that makes a plugin declare the capabilities ips and mac, as far as the pod requests
// them and they are not declared yet. The first plugin of a network gets the change. Definitions for Multus often declare
// neither, because Multus passes both requests in CNI_ARGS, too. CheckAddresses finds a plugin that ignores them. Without
// such a request, WithCapabilities returns nil.
func (n *Network) WithCapabilities(declared []string) func(*rawjson.Object) error {
	var missing []string
	for _, a := range n.asks() {
		if (a.capability == "ips" || a.capability == "mac") && !slices.Contains(declared, a.capability) {
			missing = append(missing, a.capability)
		}
	}
	if missing == nil {
		return nil
	}
	return func(plugin *rawjson.Object) error {
		all, err := object(plugin, "capabilities")
		if err != nil {
			return err
		}
		for _, name := range missing {
			all.Set(name, []byte("true"))
		}
		plugin.Set("capabilities", all.Bytes())
		return nil
	}
}

// hostPorts returns the port mappings that have a host port. Kubelet also lists ports without one.
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

// complete sets the missing bursts.
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

// dns returns the DNS settings under the capability's keys, which differ from those of a result.
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

// CapabilityArgs returns the requested settings that the network supports, given the capabilities that its plugins
// declare. The error lists every setting that the network does not support, and satisfies errors.Is(err, ErrUnsupported).
func (n *Network) CapabilityArgs(network string, declared []string) (map[string]any, error) {
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
	return args, cni.Errorf(cni.CodeUnsupportedField, "network %s: the pod asks for %s: %w: add \"capabilities\": {%s: true} to the plugin of its list that supports it",
		network, strings.Join(missing, ", "), ErrUnsupported, missing[0])
}
