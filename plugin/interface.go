package plugin

import (
	"encoding/json"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
)

// Interface configures the container's interface from a result.
type Interface struct {
	Name            string
	DAD             bool // IPv6 addresses wait for duplicate address detection
	NoDAD           bool // the link-local address does not wait for it either
	KeepIPv6        bool // except that IPv6 is on, its settings stay as they are: the addresses are not from IPAM
	NoRoute         bool // the kernel creates no routes for the addresses' prefixes
	RetryWhileTaken bool // retry while the container's previous namespace still holds the address on the shared parent
}

// Objects returns sysctls, addresses and the interface set up, in this order: the sysctls hold before the first packet
// arrives, and the kernel announces the addresses when the link comes up. See Routes.
func (i Interface) Objects(r *cni.Result) kernel.Objects {
	list := i.sysctls(r)
	for _, ip := range r.IPs {
		list = append(list, &kernel.Addr{
			In: kernel.Container, Link: i.Name, Prefix: ip.Address, DAD: i.DAD, NoRoute: i.NoRoute, RetryWhileTaken: i.RetryWhileTaken,
		})
	}
	return append(list, &kernel.Up{In: kernel.Container, Link: i.Name, RetryWhileTaken: i.RetryWhileTaken})
}

func (i Interface) sysctls(r *cni.Result) (list kernel.Objects) {
	set := func(family, link, key, value string) {
		list = append(list, &kernel.Sysctl{
			In: kernel.Container, Key: "net/" + family + "/conf/" + link + "/" + key, Value: value, Link: link, Optional: true,
		})
	}
	v4, v6 := Families(r)
	if v4 {
		set("ipv4", i.Name, "arp_notify", "1")
	}
	if v6 {
		set("ipv6", "lo", "disable_ipv6", "0") // a runtime may create the namespace without IPv6
		set("ipv6", i.Name, "disable_ipv6", "0")
	}
	if v6 && !i.KeepIPv6 {
		set("ipv6", i.Name, "accept_ra", "0") // IPAM assigns the addresses; ignore router advertisements (CVE-2020-10749)
		if i.NoDAD {
			set("ipv6", i.Name, "accept_dad", "0")
		}
		set("ipv6", i.Name, "keep_addr_on_down", "1")
		set("ipv6", i.Name, "ndisc_notify", "1")
	}
	return list
}

// Routes returns the result's routes on an interface. A route without a gateway uses the gateway of the first address
// of its family. A container on several networks has a default route through each of them.
func Routes(name string, r *cni.Result) (list kernel.Objects) {
	for _, rt := range r.Routes {
		o := &kernel.Route{
			In: kernel.Container, Link: name, Dst: rt.Dst, Via: rt.GW,
			Metric: rt.Priority, MTU: rt.MTU, AdvMSS: rt.AdvMSS, Scope: rt.Scope, AllowOthers: true,
		}
		if o.Via.IsUnspecified() { // a list asks for a route without a gateway
			o.Via = netip.Addr{}
		} else if !o.Via.IsValid() && (rt.Scope == nil || *rt.Scope != kernel.ScopeLink) {
			o.Via = gateway(r, rt.Dst.Addr().Is4())
		}
		if rt.Table != nil {
			o.Table = *rt.Table
		}
		list = append(list, o)
	}
	return list
}

// RoutesThrough returns the unicast routes through a link, of both families, in all tables but the kernel's local table.
func RoutesThrough(f Facts, s kernel.Side, l *kernel.LinkInfo) (out []kernel.RouteInfo, err error) {
	for _, family := range []byte{kernel.IPv4, kernel.IPv6} {
		all, err := f.Routes(s, family, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if r.Index == l.Index && r.Table != kernel.LocalTable && r.IsUnicast() {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

func gateway(r *cni.Result, v4 bool) netip.Addr {
	for _, ip := range r.IPs {
		if ip.Gateway.IsValid() && ip.Gateway.Is4() == v4 {
			return ip.Gateway
		}
	}
	return netip.Addr{}
}

// Families reports which address families a result has.
func Families(r *cni.Result) (v4, v6 bool) {
	for _, ip := range r.IPs {
		v4 = v4 || ip.Address.Addr().Is4()
		v6 = v6 || ip.Address.Addr().Is6()
	}
	return v4, v6
}

// Forwarding returns the sysctls that make the host forward the result's families. The host's uplinks still accept
// router advertisements.
func Forwarding(a *Attachment, r *cni.Result) (list kernel.Objects, err error) {
	v4, v6 := Families(r)
	if v4 {
		list = kernel.Forwarding(kernel.Host, false, nil)
	}
	if v6 {
		uplinks, err := a.Facts.Uplinks()
		if err != nil {
			return nil, err
		}
		list = append(list, kernel.Forwarding(kernel.Host, true, uplinks)...)
	}
	return list, nil
}

// MAC returns the hardware address that an attachment asks for, or "". The first that is set wins: runtimeConfig.mac,
// args.cni.mac, MAC in CNI_ARGS, the plugin's own key.
func (c *Conf) MAC(a *Attachment, own string) (string, error) {
	mac, key := own, "mac"
	env, err := cni.ParseArgs(a.Args)
	if err != nil {
		return "", err
	}
	if v, _ := env.Get("MAC"); v != "" {
		mac, key = v, "MAC in CNI_ARGS"
	}
	if m := c.Runtime.MAC; m != "" {
		mac, key = m, "runtimeConfig.mac"
	} else if v, err := c.argsMAC(); err != nil {
		return "", err
	} else if v != "" {
		mac, key = v, "args.cni.mac"
	}
	if mac == "" {
		return "", nil
	}
	raw, err := hwaddr.Parse(mac)
	if err != nil {
		return "", cni.Invalid(c.Raw, key, err.Error())
	}
	if !hwaddr.IsUnicast(raw) {
		return "", cni.Invalid(c.Raw, key, "want a unicast address that is not zero: the first byte is even, like 02:00:00:00:00:01")
	}
	return hwaddr.Format(raw), nil
}

// argsMAC returns args.cni.mac, or "".
func (c *Conf) argsMAC() (string, error) {
	if len(c.Args.CNI) == 0 {
		return "", nil
	}
	var args struct {
		MAC json.RawMessage `json:"mac"`
	}
	if json.Unmarshal(c.Args.CNI, &args) != nil {
		return "", cni.Invalid(c.Raw, "args.cni", "want an object")
	}
	var mac string
	if len(args.MAC) > 0 && json.Unmarshal(args.MAC, &mac) != nil {
		return "", cni.Invalid(c.Raw, "args.cni.mac", "want a string, like \"02:00:00:00:00:01\"")
	}
	return mac, nil
}

// UseDNS replaces the result's DNS settings with the configuration's, if it has any. An empty list is a setting, too: it
// removes what IPAM returned.
func (c *Conf) UseDNS(r *cni.Result) {
	if d := c.DNS; d.Nameservers != nil || d.Search != nil || d.Options != nil || d.Domain != "" {
		r.DNS = d
	}
}
