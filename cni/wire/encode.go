package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
)

// Encode encodes a result in a version; "" means the result's own version, or 0.1.0 if it has none. A nil result is
// empty.
func Encode(r *cni.Result, version string) ([]byte, error) {
	if r == nil {
		r = &cni.Result{}
	}
	if version == "" {
		version = r.CNIVersion
	}
	version, err := known(version)
	if err == nil {
		err = checkSet(r)
	}
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	e := encoder{buf: make([]byte, 0, 1024), version: version}
	e.open('{')
	e.str("cniVersion", version)
	if cni.AtLeast(version, "0.3.0") {
		e.result(r)
	} else {
		e.result02(r)
	}
	e.close('}')
	return e.buf, nil
}

// checkSet returns an error if an address or a destination is the zero value, which has no text.
func checkSet(r *cni.Result) error {
	for i, ip := range r.IPs {
		if !ip.Address.IsValid() {
			return fmt.Errorf("ips[%d].address is not set", i)
		}
	}
	for i, route := range r.Routes {
		if !route.Dst.IsValid() {
			return fmt.Errorf("routes[%d].dst is not set", i)
		}
	}
	return nil
}

// EncodeValue is Encode for a result inside a document, such as prevResult.
func EncodeValue(r *cni.Result, version string) (json.RawMessage, error) {
	return Encode(r, version)
}

// known returns a document's version: "" is 0.1.0.
func known(version string) (string, error) {
	if version == "" {
		return "0.1.0", nil
	}
	if !cni.Known(version) {
		return "", fmt.Errorf("version %q of the specification is not supported: want one of %q", version, cni.Versions())
	}
	return version, nil
}

func (e *encoder) result(r *cni.Result) {
	list(e, "interfaces", r.Interfaces, e.iface)
	list(e, "ips", r.IPs, e.ip)
	list(e, "routes", r.Routes, e.route)
	e.dns(r.DNS, cni.AtLeast(e.version, "1.0.0"))
}

func (e *encoder) iface(i cni.Interface) {
	e.str("name", i.Name)
	e.strIf("mac", i.Mac)
	newer := cni.AtLeast(e.version, "1.0.0")
	if newer {
		e.numIf("mtu", i.MTU)
	}
	e.strIf("sandbox", i.Sandbox)
	if newer {
		e.strIf("socketPath", i.SocketPath)
		e.strIf("pciID", i.PciID)
	}
}

func (e *encoder) ip(ip cni.IP) {
	if !cni.AtLeast(e.version, "1.0.0") {
		e.str("version", family(ip.Address.Addr()))
	}
	e.ptr("interface", ip.Interface)
	e.str("address", ip.Address.String())
	e.addrIf("gateway", ip.Gateway)
}

func (e *encoder) route(r cni.Route) {
	e.str("dst", r.Dst.String())
	e.addrIf("gw", r.GW)
	e.numIf("mtu", r.MTU)
	e.numIf("advmss", r.AdvMSS)
	e.numIf("priority", r.Priority)
	e.ptr("table", r.Table)
	e.ptr("scope", r.Scope)
}

// dns is always present before 1.0.0, and later only if something is set.
func (e *encoder) dns(d cni.DNS, omitEmpty bool) {
	if omitEmpty && d.IsZero() {
		return
	}
	e.key("dns")
	e.open('{')
	e.strs("nameservers", d.Nameservers)
	e.strIf("domain", d.Domain)
	e.strs("search", d.Search)
	e.strs("options", d.Options)
	e.close('}')
}

func (e *encoder) result02(r *cni.Result) {
	done := map[string]bool{}
	for _, ip := range r.IPs {
		f := family(ip.Address.Addr())
		if done[f] {
			continue
		}
		done[f] = true
		e.key("ip" + f)
		e.open('{')
		e.str("ip", ip.Address.String())
		e.addrIf("gateway", ip.Gateway)
		list(e, "routes", routesOf(r.Routes, f), func(r cni.Route) {
			e.str("dst", r.Dst.String())
			e.addrIf("gw", r.GW)
		})
		e.close('}')
	}
	e.dns(r.DNS, false)
}

func routesOf(routes []cni.Route, f string) []cni.Route {
	var of []cni.Route
	for _, r := range routes {
		if family(r.Dst.Addr()) == f {
			of = append(of, r)
		}
	}
	return of
}

func family(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "4"
	}
	return "6"
}

// EncodeVersions returns the answer to VERSION.
func EncodeVersions(current string, supported []string) []byte {
	e := encoder{}
	e.open('{')
	e.str("cniVersion", current)
	e.key("supportedVersions")
	e.array(supported)
	e.close('}')
	return append(e.buf, '\n')
}
