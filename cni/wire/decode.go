package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// Decode decodes a result in the version that it names, or in version, the configuration's, if it names none.
func Decode(version string, data []byte) (*cni.Result, error) {
	if err := cni.Check(data); err != nil {
		return nil, fmt.Errorf("decode result: %w", err)
	}
	members, err := rawjson.Members(data)
	if err != nil {
		return nil, fmt.Errorf("decode result: %w", cni.Invalid(data, "", "want an object"))
	}
	r := &cni.Result{}
	d := &decoder{}
	for _, m := range members {
		if foldKey(m.Key) == "cniversion" {
			r.CNIVersion = d.str(m)
		}
	}
	if r.CNIVersion == "" {
		r.CNIVersion = version
	}
	if r.CNIVersion, err = known(r.CNIVersion); err != nil {
		return nil, fmt.Errorf("decode result: %w", err)
	}
	d.newer = cni.AtLeast(r.CNIVersion, "1.0.0")
	if cni.AtLeast(r.CNIVersion, "0.3.0") {
		d.result(r, members)
	} else {
		d.result02(r, members)
	}
	if d.problem != "" {
		return nil, fmt.Errorf("decode result: %w", cni.Invalid(data, d.path(), d.problem))
	}
	return r, nil
}

// DecodePrev decodes prev, the prevResult of a plugin's configuration. An error has the position in the configuration.
func DecodePrev(conf []byte, version string, prev []byte) (*cni.Result, error) {
	r, err := Decode(version, prev)
	if e, ok := errors.AsType[*cni.ConfigError](err); ok {
		return nil, cni.Invalid(conf, strings.TrimSuffix("prevResult."+e.Key, "."), e.Problem)
	}
	return r, err
}

func (d *decoder) result(r *cni.Result, members []rawjson.Member) {
	for _, m := range members {
		switch foldKey(m.Key) {
		case "interfaces":
			r.Interfaces = each(d, m, d.iface)
		case "ips":
			r.IPs = each(d, m, d.ip)
		case "routes":
			r.Routes = each(d, m, d.route)
		case "dns":
			r.DNS = d.dns(m)
		}
	}
}

func (d *decoder) iface(members []rawjson.Member) (i cni.Interface) {
	for _, m := range members {
		switch key := foldKey(m.Key); {
		case key == "name":
			i.Name = d.str(m)
		case key == "mac":
			i.Mac = d.str(m)
		case key == "sandbox":
			i.Sandbox = d.str(m)
		case !d.newer: // a plugin's own key, of any type
		case key == "mtu":
			i.MTU = d.num(m)
		case key == "socketpath":
			i.SocketPath = d.str(m)
		case key == "pciid":
			i.PciID = d.str(m)
		}
	}
	return i
}

func (d *decoder) ip(members []rawjson.Member) cni.IP { return d.ipIn("address", members) }

// ipIn reads an address; key is the version's name for it.
func (d *decoder) ipIn(key string, members []rawjson.Member) (ip cni.IP) {
	for _, m := range members {
		switch foldKey(m.Key) {
		case "interface":
			ip.Interface = d.ptr(m)
		case key:
			ip.Address = d.prefix(m)
		case "gateway":
			ip.Gateway = d.addr(m)
		}
	}
	if !ip.Address.IsValid() {
		d.refuse(key, wantPrefix)
	}
	return ip
}

func (d *decoder) route(members []rawjson.Member) (r cni.Route) {
	for _, m := range members {
		switch foldKey(m.Key) {
		case "dst":
			r.Dst = d.destination(m)
		case "gw":
			r.GW = d.addr(m)
		case "mtu":
			r.MTU = d.num(m)
		case "advmss":
			r.AdvMSS = d.num(m)
		case "priority":
			r.Priority = d.num(m)
		case "table":
			r.Table = d.ptr(m)
		case "scope":
			r.Scope = d.ptr(m)
		}
	}
	if !r.Dst.IsValid() {
		d.refuse("dst", wantPrefix)
	}
	return r
}

func (d *decoder) dns(m rawjson.Member) (dns cni.DNS) {
	members := d.object(m)
	d.push(m.Key)
	defer d.pop()
	for _, m := range members {
		switch foldKey(m.Key) {
		case "nameservers":
			dns.Nameservers = d.strs(m)
		case "domain":
			dns.Domain = d.str(m)
		case "search":
			dns.Search = d.strs(m)
		case "options":
			dns.Options = d.strs(m)
		}
	}
	return dns
}

// result02 reads ip4 and ip6 of 0.1.0 and 0.2.0, in this order.
func (d *decoder) result02(r *cni.Result, members []rawjson.Member) {
	for _, key := range []string{"ip4", "ip6", "dns"} {
		for _, m := range members {
			switch k := foldKey(m.Key); {
			case k != key || isNull(m.Raw):
			case key == "dns":
				r.DNS = d.dns(m)
			default:
				d.ip02(r, m)
			}
		}
	}
}

func (d *decoder) ip02(r *cni.Result, m rawjson.Member) {
	members := d.object(m)
	d.push(m.Key)
	r.IPs = append(r.IPs, d.ipIn("ip", members))
	for _, m := range members {
		if foldKey(m.Key) == "routes" {
			r.Routes = append(r.Routes, each(d, m, d.route)...)
		}
	}
	d.pop()
}

// foldKey makes keys comparable ignoring case, as in encoding/json. A lower-case key costs nothing.
func foldKey(key string) string { return strings.ToLower(key) }

func isNull(raw []byte) bool { return bytes.Equal(raw, []byte("null")) }
