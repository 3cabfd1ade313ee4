package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/skel"
)

// Static returns the plugin static: the addresses listed in the configuration.
func Static() skel.Plugin {
	return skel.Plugin{
		Name:     "static",
		About:    "assigns the addresses listed in the configuration and keeps no state",
		AnyNetns: true,
		Funcs: skel.CNIFuncs{
			Add:    staticAdd,
			Check:  staticCheck,
			Del:    func(context.Context, *skel.CmdArgs) error { return nil },
			Status: staticStatus,
		},
	}
}

func staticAdd(_ context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	return parseStatic(args.StdinData, args.Args)
}

func staticStatus(_ context.Context, args *skel.CmdArgs) error {
	_, err := parseStatic(args.StdinData, "")
	return err
}

// staticCheck compares the configuration with the result of ADD.
func staticCheck(_ context.Context, args *skel.CmdArgs) error {
	want, err := parseStatic(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	var c cni.PluginConf
	if err := cni.Decode(args.StdinData, &c); err != nil {
		return err
	}
	if !c.HasPrevResult() {
		return cni.Invalid(args.StdinData, "prevResult", "missing: CHECK needs the result of ADD")
	}
	got, err := wire.DecodePrev(args.StdinData, c.CNIVersion, c.RawPrevResult)
	if err != nil {
		return err
	}
	var errs []error
	for _, ip := range want.IPs {
		if !has(got.IPs, ip) {
			text := ip.Address.String()
			if ip.Gateway.IsValid() {
				text += " with gateway " + ip.Gateway.String()
			}
			errs = append(errs, fmt.Errorf("address %s is not in prevResult: want the result of ADD for this configuration", text))
		}
	}
	return errors.Join(errs...)
}

// has reports whether ips contains an address, with its gateway if it has one.
func has(ips []cni.IP, want cni.IP) bool {
	for _, ip := range ips {
		if ip.Address == want.Address && (!want.Gateway.IsValid() || ip.Gateway == want.Gateway) {
			return true
		}
	}
	return false
}

type staticConf struct {
	Addresses []struct {
		Address netip.Prefix `json:"address"`
		Gateway netip.Addr   `json:"gateway"`
	} `json:"addresses"`
	Routes []routeConf `json:"routes"`
	DNS    cni.DNS     `json:"dns"`
}

func parseStatic(data []byte, cniArgs string) (*cni.Result, error) {
	c, err := decode[staticConf](data)
	if err != nil {
		return nil, err
	}
	r := &cni.Result{CNIVersion: c.CNIVersion, DNS: c.IPAM.DNS}
	if r.IPs, err = staticIPs(data, c, cniArgs); err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, ip := range r.IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	if err := checkFamilies(c.CNIVersion, addrs); err != nil {
		return nil, err
	}
	r.Routes, err = routes(data, c.IPAM.Routes)
	return r, err
}

// staticIPs returns the addresses of runtimeConfig. If there are none, it returns those of args; if there are none
// either, those of the configuration followed by those of CNI_ARGS.
func staticIPs(data []byte, c conf[staticConf], cniArgs string) ([]cni.IP, error) {
	fromArgs, err := argAddresses(cniArgs)
	if err != nil {
		return nil, err
	}
	if ips := c.RuntimeConfig.IPs; len(ips) > 0 {
		return prefixes(data, "runtimeConfig.ips", ips)
	}
	if ips := c.Args.CNI.IPs; len(ips) > 0 {
		return prefixes(data, "args.cni.ips", ips)
	}
	var ips []cni.IP
	for i, a := range c.IPAM.Addresses {
		key := fmt.Sprintf("ipam.addresses[%d]", i)
		a.Address = wire.UnmapPrefix(a.Address)
		if !a.Address.IsValid() {
			return nil, cni.Invalid(data, key+".address", "missing: "+wantAddress)
		}
		if err := gatewayOf(data, key+".gateway", a.Gateway, a.Address); err != nil {
			return nil, err
		}
		ips = append(ips, cni.IP{Address: a.Address, Gateway: a.Gateway.Unmap()})
	}
	return append(ips, fromArgs...), nil
}
