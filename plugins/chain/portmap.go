package chain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// Portmap returns the plugin that forwards host ports to a container.
func Portmap() plugin.Plugin {
	return plugin.Plugin{
		Name: "portmap", About: "forwards ports of the host to a container", Chained: true,
		New: func() plugin.Config { return &portmap{SNAT: true} },
	}
}

type portmap struct {
	plugin.Conf
	Backend              *string  `json:"backend"`
	SNAT                 bool     `json:"snat"`
	MasqAll              bool     `json:"masqAll"`
	MarkMasqBit          *int     `json:"markMasqBit"`
	ExternalSetMarkChain *string  `json:"externalSetMarkChain"`
	ConditionsV4         []string `json:"conditionsV4"`
	ConditionsV6         []string `json:"conditionsV6"`
	RuntimeConfig        struct {
		PortMappings []portMapping `json:"portMappings"`
	} `json:"runtimeConfig"`

	mappings []mapping
}

// portMapping is an element of runtimeConfig.portMappings. Keys are case-insensitive: some runtimes write HostPort.
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// mapping is a valid portMapping.
type mapping struct {
	hostIP              netip.Addr // zero: every address of both families
	hostPort, container uint16
	protocol            string
}

// every reports whether the mapping applies to every address of the host.
func (m mapping) every() bool { return !m.hostIP.IsValid() || m.hostIP.IsUnspecified() }

// serves reports whether the mapping applies to a family.
func (m mapping) serves(v4 bool) bool { return !m.hostIP.IsValid() || m.hostIP.Is4() == v4 }

func (c *portmap) Validate(*plugin.Attachment) error {
	if c.Backend != nil && *c.Backend != "nftables" && *c.Backend != "iptables" {
		return cni.Invalid(c.Raw, "backend", `want "nftables" or "iptables"`)
	}
	if c.MarkMasqBit != nil && c.ExternalSetMarkChain != nil {
		return cni.Invalid(c.Raw, "externalSetMarkChain", "cannot specify externalSetMarkChain and markMasqBit at the same time")
	}
	if c.ExternalSetMarkChain != nil && *c.ExternalSetMarkChain == "" {
		return cni.Invalid(c.Raw, "externalSetMarkChain", "want the name of a chain, like KUBE-MARK-MASQ, or omit it")
	}
	if c.MarkMasqBit != nil && (*c.MarkMasqBit < 0 || *c.MarkMasqBit > 31) {
		return cni.Invalid(c.Raw, "markMasqBit", "want a bit from 0 to 31")
	}
	if c.Backend != nil && *c.Backend == "nftables" && c.wantsIPTables() {
		return cni.Invalid(c.Raw, "backend", "the configuration has keys that only iptables supports: externalSetMarkChain, or conditions that begin with - or !")
	}
	if key := c.nftablesOnly(); key != "" && c.iptables() {
		return cni.Invalid(c.Raw, key, "these conditions are in nft syntax, but the configuration asks for iptables, whose conditions begin with - or !")
	}
	for i, p := range c.RuntimeConfig.PortMappings {
		m, key, problem := p.valid()
		if problem != "" {
			return cni.Invalid(c.Raw, fmt.Sprintf("runtimeConfig.portMappings[%d].%s", i, key), problem)
		}
		if other := c.overlapping(m); other != "" {
			return cni.Invalid(c.Raw, fmt.Sprintf("runtimeConfig.portMappings[%d]", i), "the same host port as "+other)
		}
		c.mappings = append(c.mappings, m)
	}
	// The first rule that matches counts: a mapping of one address precedes the mapping of all addresses.
	slices.SortStableFunc(c.mappings, func(a, b mapping) int {
		switch {
		case a.every() == b.every():
			return 0
		case b.every():
			return -1
		}
		return 1
	})
	return nil
}

// nftablesOnly returns a key whose conditions are not in iptables syntax, or "".
func (c *portmap) nftablesOnly() string {
	for key, list := range map[string][]string{"conditionsV4": c.ConditionsV4, "conditionsV6": c.ConditionsV6} {
		if len(list) > 0 && !strings.HasPrefix(list[0], "-") && !strings.HasPrefix(list[0], "!") {
			return key
		}
	}
	return ""
}

func (p portMapping) valid() (m mapping, key, problem string) {
	m.protocol = strings.ToLower(p.Protocol)
	if m.protocol == "" {
		m.protocol = "tcp"
	}
	var err error
	if p.HostIP != "" {
		m.hostIP, err = netip.ParseAddr(p.HostIP)
		m.hostIP = m.hostIP.Unmap()
	}
	switch {
	case p.HostPort < 1 || p.HostPort > 65535:
		return m, "hostPort", "want a port from 1 to 65535"
	case p.ContainerPort < 1 || p.ContainerPort > 65535:
		return m, "containerPort", "want a port from 1 to 65535"
	case m.protocol != "tcp" && m.protocol != "udp" && m.protocol != "sctp":
		return m, "protocol", "want tcp, udp or sctp"
	case err != nil, m.hostIP.Zone() != "", m.hostIP.IsMulticast():
		return m, "hostIP", "want an address of the host, for example 192.0.2.1, or omit it for all addresses"
	}
	m.hostPort, m.container = uint16(p.HostPort), uint16(p.ContainerPort)
	return m, "", ""
}

// overlapping returns the earlier mapping of the same request that conflicts with m, or "". A mapping of one address
// may be an exception to a mapping of all addresses.
func (c *portmap) overlapping(m mapping) string {
	for i, o := range c.mappings {
		same := o.protocol == m.protocol && o.hostPort == m.hostPort && o.container != m.container
		families := m.serves(true) && o.serves(true) || m.serves(false) && o.serves(false)
		if same && (o.hostIP == m.hostIP || o.every() && m.every() && families) {
			return fmt.Sprintf("portMappings[%d]", i)
		}
	}
	return ""
}

// wantsIPTables reports whether a key needs iptables.
func (c *portmap) wantsIPTables() bool {
	if c.ExternalSetMarkChain != nil {
		return true
	}
	for _, list := range [][]string{c.ConditionsV4, c.ConditionsV6} {
		if len(list) > 0 && (strings.HasPrefix(list[0], "-") || strings.HasPrefix(list[0], "!")) {
			return true
		}
	}
	return false
}

func (c *portmap) iptables() bool {
	return c.wantsIPTables() || c.Backend != nil && *c.Backend == "iptables"
}

func (c *portmap) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	if len(c.mappings) == 0 {
		return nil, nil
	}
	var list kernel.Objects
	for _, ip := range targets(a, r) {
		v4 := ip.Addr().Is4()
		var own []mapping
		for _, m := range c.mappings {
			if m.serves(v4) {
				own = append(own, m)
			}
		}
		if len(own) == 0 {
			continue
		}
		if list == nil && !c.iptables() {
			list = base()
		}
		switch {
		case c.iptables():
			list = append(list, c.iptablesObjects(a, ip, own)...)
		case len(c.conditions(v4)) > 0:
			list = append(list, c.conditional(a, ip, own)...)
		default:
			list = append(list, c.maps(a, ip, own)...)
		}
		if v4 && c.SNAT {
			list = append(list, c.fromLoopback(a, r, ip.Addr())...)
		}
		list = append(list, flows(ip.Addr(), own, len(c.conditions(ip.Addr().Is4())) > 0)...)
	}
	return list, nil
}

// ReferenceObjects returns the reference plugin's rules.
func (c *portmap) ReferenceObjects(a *plugin.Attachment) kernel.Objects {
	return ruleset.ReferencePorts(a)
}

func (c *portmap) conditions(v4 bool) []string {
	if v4 {
		return c.ConditionsV4
	}
	return c.ConditionsV6
}

// targets returns the container's first address of each family.
func targets(a *plugin.Attachment, r *cni.Result) (out []netip.Prefix) {
	var have [2]bool
	for _, ip := range r.IPs {
		if i := r.InterfaceOf(ip); i != nil && (i.Name != a.IfName || i.Sandbox == "") {
			continue
		}
		family := 0
		if ip.Address.Addr().Is6() {
			family = 1
		}
		if !have[family] {
			have[family] = true
			out = append(out, ip.Address)
		}
	}
	return out
}

// flows removes conntrack entries of UDP flows to an earlier target of the port.
func flows(target netip.Addr, list []mapping, conditional bool) (out kernel.Objects) {
	for _, m := range list {
		if m.protocol == "udp" {
			out = append(out, &kernel.ConntrackFlows{HostIP: m.hostIP, Port: m.hostPort, Target: target, Conditional: conditional})
		}
	}
	return out
}

// Claims returns the host ports, for the record and for their locks.
func (c *portmap) Claims() []attach.Port {
	var out []attach.Port
	for _, m := range c.mappings {
		p := attach.Port{HostPort: int(m.hostPort), ContainerPort: int(m.container), Protocol: m.protocol}
		if m.hostIP.IsValid() {
			p.HostIP = m.hostIP.String()
		}
		out = append(out, p)
	}
	return out
}

// Ready reports whether the command that the backend needs exists.
func (c *portmap) Ready(context.Context, *plugin.Attachment) error {
	tool := ""
	switch {
	case c.iptables():
		tool = "iptables"
	case len(c.ConditionsV4)+len(c.ConditionsV6) > 0:
		tool = "nft"
	default:
		return nil
	}
	if _, err := kernel.FindProgram(tool); err != nil {
		return cni.Errorf(cni.CodePluginNotAvailable, "portmap needs %s for this configuration: %w", tool, err)
	}
	return nil
}
