package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/ipam"
)

// whereaboutsRange is one range, with whereabouts' keys.
type whereaboutsRange struct {
	Range      string     `json:"range"` // "10.1.0.0/16", "10.1.0.5/16" or "10.1.0.5-10.1.0.9/16"
	RangeStart netip.Addr `json:"range_start"`
	RangeEnd   netip.Addr `json:"range_end"`
	Exclude    []string   `json:"exclude"`
}

type whereaboutsConf struct {
	whereaboutsRange
	IPRanges    []whereaboutsRange `json:"ipRanges"`
	Gateway     netip.Addr         `json:"gateway"`
	Routes      []routeConf        `json:"routes"`
	DNS         cni.DNS            `json:"dns"`
	NetworkName string             `json:"network_name"`
	Overlap     *bool              `json:"enable_overlapping_ranges"` // default: an address is allocated once, in whatever range
	Addresses   []struct {
		Address netip.Prefix `json:"address"`
		Gateway netip.Addr   `json:"gateway"`
	} `json:"addresses"`
	ConfigurationPath string `json:"configuration_path"`
}

// whereabouts is a valid configuration.
type whereabouts struct {
	version, name string
	pod           string
	networks      []whereaboutsNetwork
	fixed         []cni.IP // in addition to those of the ranges
	routes        []cni.Route
	dns           cni.DNS
}

// whereaboutsNetwork has ranges whose addresses are allocated once.
type whereaboutsNetwork struct {
	name   string
	groups []*group
	wants  []local.Want
}

// whereaboutsName is the prefix of these networks' names, in the store and on the node.
const whereaboutsName = "whereabouts"

// flatFiles returns the paths of whereabouts' defaults.
func flatFiles() []string {
	return []string{"/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf", "/etc/cni/net.d/whereabouts.d/whereabouts.conf"}
}

// mergeFlat adds the keys of the defaults file that the configuration lacks, as whereabouts does.
func mergeFlat(data []byte) ([]byte, error) {
	c, err := decode[whereaboutsConf](data)
	if err != nil {
		return nil, err
	}
	files := flatFiles()
	if path := c.IPAM.ConfigurationPath; path != "" {
		files = append([]string{path}, files...)
	}
	for _, path := range files {
		raw, err := os.ReadFile(filepath.Clean(path))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, cni.Invalid(data, "ipam.configuration_path", err.Error())
		}
		merged, err := merge(data, raw)
		if err != nil {
			return nil, cni.Invalid(data, "ipam.configuration_path", fmt.Sprintf("the defaults in %s: %v", path, err))
		}
		return merged, nil
	}
	return data, nil
}

func merge(data, flat []byte) ([]byte, error) {
	conf, err := rawjson.ParseObject(data)
	if err != nil {
		return nil, err
	}
	var defaults, own map[string]json.RawMessage
	if err := cni.Decode(flat, &defaults); err != nil {
		return nil, err
	}
	v, _ := rawjson.Find(data, "ipam")
	if err := json.Unmarshal(v.Raw, &own); err != nil {
		return nil, err
	}
	if defaults == nil { // the file contains null
		defaults = own
	}
	maps.Copy(defaults, own)
	raw, err := json.Marshal(defaults)
	if err != nil {
		return nil, err
	}
	conf.Set("ipam", raw)
	return conf.Bytes(), nil
}

func parseWhereabouts(data []byte, cniArgs string) (*whereabouts, error) {
	merged, err := mergeFlat(data)
	if err != nil {
		return nil, err
	}
	c, err := decode[whereaboutsConf](merged)
	if err != nil {
		return nil, err
	}
	w := &whereabouts{version: c.CNIVersion, name: c.Name, dns: c.IPAM.DNS}
	if w.networks, err = whereaboutsNetworks(data, c.IPAM); err != nil {
		return nil, err
	}
	if err := w.staticOf(data, c.IPAM, cniArgs); err != nil {
		return nil, err
	}
	if len(w.networks) == 0 && len(w.fixed) == 0 {
		return nil, cni.Invalid(data, "ipam.range", `missing: want a range like "192.168.2.225/28"`)
	}
	if w.routes, err = routes(data, c.IPAM.Routes); err != nil {
		return nil, err
	}
	return w, w.families()
}

// staticOf reads the addresses in addition to those of the ranges.
func (w *whereabouts) staticOf(data []byte, c *whereaboutsConf, cniArgs string) (err error) {
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return err
	}
	ns, _ := args.Get("K8S_POD_NAMESPACE")
	name, _ := args.Get("K8S_POD_NAME")
	if ns != "" && name != "" {
		w.pod = ns + "/" + name
	}
	for i, a := range c.Addresses {
		key := fmt.Sprintf("ipam.addresses[%d]", i)
		if !a.Address.IsValid() {
			return cni.Invalid(data, key+".address", "missing: "+wantAddress)
		}
		ip := cni.IP{Address: wire.UnmapPrefix(a.Address), Gateway: a.Gateway.Unmap()}
		if err := gatewayOf(data, key+".gateway", ip.Gateway, ip.Address); err != nil {
			return err
		}
		w.fixed = append(w.fixed, ip)
	}
	more, err := argAddresses(strings.TrimSuffix("IgnoreUnknown=1;"+cniArgs, ";"))
	w.fixed = append(w.fixed, more...)
	return err
}

func (w *whereabouts) families() error {
	var addrs []netip.Addr
	for _, n := range w.networks {
		for _, g := range n.groups {
			addrs = append(addrs, g.subnets[0].CIDR.Addr())
		}
	}
	for _, ip := range w.fixed {
		addrs = append(addrs, ip.Address.Addr())
	}
	return checkFamilies(w.version, addrs)
}

// whereaboutsNetworks returns the ranges by the names that separate their addresses: network_name, and the range if
// several ranges may have the same address.
func whereaboutsNetworks(data []byte, c *whereaboutsConf) (out []whereaboutsNetwork, err error) {
	base := whereaboutsName
	if c.NetworkName != "" {
		base += "-" + c.NetworkName
	}
	if err := cni.ValidateNetworkName(base); err != nil {
		return nil, cni.Invalid(data, "ipam.network_name", err.Error())
	}
	ranges, keys := c.IPRanges, []string{}
	for i := range ranges {
		keys = append(keys, fmt.Sprintf("ipam.ipRanges[%d]", i))
	}
	if c.Range != "" {
		ranges, keys = append([]whereaboutsRange{c.whereaboutsRange}, ranges...), append([]string{"ipam"}, keys...)
	}
	if err := checkZone(data, "ipam.gateway", c.Gateway); err != nil {
		return nil, err
	}
	for i, r := range ranges {
		g, want, err := r.group(data, keys[i], c.Gateway.Unmap())
		if err != nil {
			return nil, err
		}
		name := base
		if c.Overlap != nil && !*c.Overlap {
			cidr := g.subnets[0].CIDR
			name += "-" + strings.ReplaceAll(cidr.Addr().String(), ":", ".") + fmt.Sprintf("-%d", cidr.Bits())
		}
		at := slices.IndexFunc(out, func(n whereaboutsNetwork) bool { return n.name == name })
		if at < 0 {
			at, out = len(out), append(out, whereaboutsNetwork{name: name})
		}
		n := &out[at]
		n.groups, n.wants = append(n.groups, g), append(n.wants, want)
	}
	return out, nil
}

// group converts a range: its bounds and its exclusions.
func (r whereaboutsRange) group(data []byte, key string, gateway netip.Addr) (*group, local.Want, error) {
	from, to, prefix, err := parseWhereaboutsRange(r.Range)
	if err != nil {
		return nil, local.Want{}, cni.Invalid(data, key+".range", err.Error())
	}
	x := ipam.Range{Subnet: prefix, Start: from, End: to}
	if !from.IsValid() { // the bounds of range take precedence
		x.Start, x.End = r.RangeStart.Unmap(), r.RangeEnd.Unmap()
	}
	// Like whereabouts, never allocate the network address or IPv4's broadcast address.
	if x.Start == prefix.Addr() {
		x.Start = netip.Addr{}
	}
	if x.End.Is4() && x.End == ipam.LastOf(prefix) {
		x.End = netip.Addr{}
	}
	x, err = x.Complete()
	if e, ok := errors.AsType[*ipam.FieldError](err); ok {
		field := "range"
		switch {
		case from.IsValid():
		case e.Field == "rangeStart" && r.RangeStart.IsValid():
			field = "range_start"
		case e.Field == "rangeEnd" && r.RangeEnd.IsValid():
			field = "range_end"
		}
		return nil, local.Want{}, cni.Invalid(data, key+"."+field, e.Problem)
	}
	set := ipam.RangeSet{x}
	for i, text := range r.Exclude {
		first, last, err := cluster.ParseRange(text)
		if err != nil {
			return nil, local.Want{}, cni.Invalid(data, fmt.Sprintf("%s.exclude[%d]", key, i), err.Error())
		}
		set = local.Without(set, first, last)
	}
	g := &group{subnets: []local.Subnet{{CIDR: prefix, Assign: cluster.AssignCluster}}}
	if prefix.Contains(gateway) {
		g.gateway = gateway
		set = local.Subtract(set, []netip.Addr{gateway})
	}
	var w local.Want
	for _, s := range set {
		w.Ranges = append(w.Ranges, local.Span{First: s.Start, Last: s.End})
	}
	if len(w.Ranges) == 0 {
		return nil, w, cni.Invalid(data, key+".exclude", "the exclusions cover the whole range: leave at least one address")
	}
	return g, w, nil
}

// parseWhereaboutsRange parses "10.1.0.5-10.1.0.9/16", and "10.1.0.5/16", which is all of 10.1.0.0/16.
func parseWhereaboutsRange(text string) (from, to netip.Addr, prefix netip.Prefix, err error) {
	begin, rest, two := strings.Cut(text, "-")
	if !two {
		rest = text
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(rest))
	if err == nil && two {
		to = p.Addr()
		from, err = netip.ParseAddr(strings.TrimSpace(begin))
	}
	if err != nil || from.IsValid() && !p.Masked().Contains(from) {
		return from, to, p, errors.New(`want a range like "192.168.2.225/28" or "192.168.2.225-192.168.2.230/28"`)
	}
	return from, to, p.Masked(), nil
}
