package chain

import (
	"context"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// Firewall returns the plugin that lets a container's traffic through the host's forward chains.
func Firewall() plugin.Plugin {
	return plugin.Plugin{
		Name: "firewall", About: "allows a container's traffic where the host's firewall drops forwarded packets", Chained: true,
		New: func() plugin.Config { return &firewall{} },
	}
}

type firewall struct {
	plugin.Conf
	Backend       string `json:"backend"`
	AdminChain    string `json:"iptablesAdminChainName"`
	Zone          string `json:"firewalldZone"`
	IngressPolicy string `json:"ingressPolicy"`

	namesAdminChain bool
}

func (c *firewall) Validate(*plugin.Attachment) error {
	switch c.Backend {
	case "", "nftables", "iptables", "firewalld":
	default:
		return cni.Invalid(c.Raw, "backend", `want "nftables", "iptables" or "firewalld", or omit it to use whichever manages the host`)
	}
	switch c.IngressPolicy {
	case "", "open", "same-bridge", "isolated":
	default:
		return cni.Invalid(c.Raw, "ingressPolicy", `want "open", "same-bridge" or "isolated"`)
	}
	if len(c.AdminChain) > 28 || c.AdminChain == forwardChain {
		return cni.Invalid(c.Raw, "iptablesAdminChainName", "want the name of your own chain, at most 28 bytes")
	}
	c.namesAdminChain = c.AdminChain != ""
	if !c.namesAdminChain {
		c.AdminChain = "CNI-ADMIN"
	}
	if c.Zone == "" {
		c.Zone = "trusted"
	}
	return nil
}

// Addressed returns the policy between bridges, and the rules that make the host forward the container's packets. By
// default there are none, because the kernel forwards.
func (c *firewall) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	list, err := c.ingress(a, r)
	if err != nil {
		return nil, err
	}
	ips := ownIPs(a, r)
	switch {
	case c.Backend == "firewalld" || c.Backend == "" && a.Facts.Firewalld():
		for _, ip := range ips {
			list = append(list, &kernel.ZoneSource{Zone: c.Zone, Addr: whole(ip).String()})
		}
		return list, nil
	case c.Backend == "iptables":
		for _, ip := range ips {
			list = append(list, c.iptables(ruleset.FamilyOf(ip.Address.Addr().Is4()).IPTables, ip)...)
		}
		return list, nil
	}
	dropping, err := a.Facts.ForwardDropChains(c.AdminChain)
	if err != nil {
		return nil, err
	}
	for _, family := range []string{"ip", "ip6"} {
		// Packets must reach the named chain as soon as it gets rules, not only if it has some now.
		if c.namesAdminChain && !slices.ContainsFunc(dropping, func(d kernel.ForwardDropChain) bool { return d.IPTables() && d.Family == family }) {
			dropping = append(dropping, kernel.ForwardDropChain{Family: family, Table: "filter", Chain: "FORWARD"})
		}
	}
	for _, d := range dropping {
		list = append(list, c.admit(a, d, ips)...)
	}
	return list, nil
}

// admit lets the addresses through one chain that drops.
func (c *firewall) admit(a *plugin.Attachment, d kernel.ForwardDropChain, ips []cni.IP) (list kernel.Objects) {
	for _, ip := range ips {
		v4 := ip.Address.Addr().Is4()
		if d.Family == "ip" && !v4 || d.Family == "ip6" && v4 {
			continue
		}
		command := ruleset.FamilyOf(v4).IPTables
		switch {
		case d.Legacy:
			list = append(list, c.iptables(command+"-legacy", ip)...)
		case d.IPTables():
			list = append(list, c.iptables(command, ip)...)
		default:
			list = append(list, &kernel.ForwardRule{Family: d.Family, Table: d.Table, Chain: d.Chain, Addr: ip.Address.Addr().String(), V6: !v4, OwnerTag: a.Tag()})
		}
	}
	return list
}

const forwardChain = "CNI-FORWARD"

// iptables returns the same chains as the reference plugin, an administrator's first.
func (c *firewall) iptables(command ruleset.IPTables, ip cni.IP) kernel.Objects {
	t, addr := command.Filter(), whole(ip).String()
	return kernel.Objects{
		t.Chain(forwardChain, true),
		t.Chain(c.AdminChain, true),
		t.First("FORWARD", "-m", "comment", "--comment", "CNI firewall plugin rules", "-j", forwardChain),
		t.First(forwardChain, "-m", "comment", "--comment", "CNI firewall plugin admin overrides", "-j", c.AdminChain),
		t.Rule(false, forwardChain, "-d", addr, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"),
		t.Rule(false, forwardChain, "-s", addr, "-j", "ACCEPT"),
		t.Rule(false, forwardChain, "-d", addr, "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT"), // host ports
	}
}

func whole(ip cni.IP) netip.Prefix {
	a := ip.Address.Addr()
	return netip.PrefixFrom(a, a.BitLen())
}

// Find returns the objects for the prevResult that DEL got.
func (c *firewall) Find(a *plugin.Attachment) (kernel.Objects, error) {
	if c.Prev == nil {
		return nil, nil
	}
	return c.Addressed(a, c.Prev.Clone())
}

// ReferenceObjects returns the reference plugin's rules for the addresses that DEL got.
func (c *firewall) ReferenceObjects(*plugin.Attachment) kernel.Objects {
	if c.Prev == nil {
		return nil
	}
	return ruleset.ReferenceForward(c.Prev.IPs)
}

// ingress returns the rules of the container's bridge, see ruleset.Ingress.
func (c *firewall) ingress(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	if c.IngressPolicy == "" || c.IngressPolicy == "open" {
		return nil, nil
	}
	bridge := bridgeOf(a, r)
	if bridge == "" {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "ingressPolicy %q needs a container on a bridge: prevResult names none", c.IngressPolicy)
	}
	list := ruleset.Ingress(bridge, c.IngressPolicy == "isolated")
	if c.IngressPolicy == "isolated" {
		ports, err := isolated(c.Type, a, r)
		return append(list, ports...), err
	}
	return list, nil
}

// isolated drops frames that the bridge forwards from port to port without routing, whether or not
// bridge-nf-call-iptables is on.
func isolated(who string, a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	port, err := hostEnd(who, a, r)
	if err != nil {
		return nil, err
	}
	const set = "ingress-isolated" // ports that exchange no frames with each other
	part := func(what, in, text string) *kernel.NFT {
		n := ruleset.Part(what, in, text)
		n.Family = "bridge"
		return n
	}
	return kernel.Objects{
		part("table", "", ""),
		part("set", set, "ifname"),
		part("chain", "forward", ruleset.Forward),
		part("rule", "forward", "iifname @"+set+" oifname @"+set+" ether type ip drop"),
		part("rule", "forward", "iifname @"+set+" oifname @"+set+" ether type ip6 drop"),
		&kernel.Element{Family: "bridge", Table: kernel.Table, Set: set, Type: "ifname", Key: port.Name, OwnerTag: a.Tag()},
	}, nil
}

// bridgeOf returns the container's bridge: from prevResult or, for a result without interfaces (before 0.3.0), the
// master of the link's other end.
func bridgeOf(a *plugin.Attachment, r *cni.Result) string {
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		if l, err := a.Facts.Link(kernel.Host, i.Name); err == nil && l.Kind == "bridge" {
			return l.Name
		}
	}
	if len(r.Interfaces) > 0 {
		return ""
	}
	end, err := hostEnd("firewall", a, r)
	if err != nil {
		return ""
	}
	links, _ := a.Facts.Links(kernel.Host) // without a list the bridge is not found
	for _, l := range links {
		if l.Index == end.Master && l.Kind == "bridge" {
			return l.Name
		}
	}
	return ""
}

// Ready reports whether the configured backend runs.
func (c *firewall) Ready(_ context.Context, a *plugin.Attachment) error {
	if c.Backend == "firewalld" && !a.Facts.Firewalld() {
		return cni.Errorf(cni.CodePluginNotAvailable, "firewalld is not running: it has no name on the system bus")
	}
	return nil
}
