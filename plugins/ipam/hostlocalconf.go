package ipam

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
)

// rangeConf is a range in a configuration.
type rangeConf struct {
	Subnet     netip.Prefix `json:"subnet"`
	RangeStart netip.Addr   `json:"rangeStart"`
	RangeEnd   netip.Addr   `json:"rangeEnd"`
	Gateway    netip.Addr   `json:"gateway"`
}

func (r rangeConf) toRange() ipam.Range {
	return ipam.Range{Subnet: r.Subnet, Start: r.RangeStart, End: r.RangeEnd, Gateway: r.Gateway}
}

type hostLocalConf struct {
	rangeConf
	Ranges     [][]rangeConf `json:"ranges"`
	Routes     []routeConf   `json:"routes"`
	ResolvConf string        `json:"resolvConf"`
	DataDir    string        `json:"dataDir"`
}

// hostLocal is a valid configuration.
type hostLocal struct {
	version, network, dataDir string
	sets                      []ipam.RangeSet
	requested                 []netip.Addr
	routes                    []cni.Route
	dns                       cni.DNS
}

func parseHostLocal(data []byte, cniArgs string) (*hostLocal, error) {
	c, err := decode[hostLocalConf](data)
	if err != nil {
		return nil, err
	}
	h := &hostLocal{version: c.CNIVersion, network: c.Name, dataDir: dataDirOr(c.IPAM.DataDir)}
	if h.sets, err = rangeSets(data, c); err != nil {
		return nil, err
	}
	var firsts []netip.Addr
	for _, set := range h.sets {
		firsts = append(firsts, set[0].Start)
	}
	if err := checkFamilies(c.CNIVersion, firsts); err != nil {
		return nil, err
	}
	if h.requested, err = requestedIPs(data, c, cniArgs, h.sets); err != nil {
		return nil, err
	}
	if h.routes, err = routes(data, c.IPAM.Routes); err != nil {
		return nil, err
	}
	if c.IPAM.ResolvConf != "" {
		if h.dns, err = readResolvConf(c.IPAM.ResolvConf); err != nil {
			return nil, cni.Invalid(data, "ipam.resolvConf", err.Error())
		}
	}
	return h, nil
}

// rangeSets returns the sets in the reference plugin's order: the runtime's, the one of the keys next to ranges, those
// of ranges.
func rangeSets(data []byte, c conf[hostLocalConf]) ([]ipam.RangeSet, error) {
	var sets []ipam.RangeSet
	var keys []string
	add := func(key string, lists [][]rangeConf) {
		for i, list := range lists {
			set := ipam.RangeSet{}
			for _, r := range list {
				set = append(set, r.toRange())
			}
			sets, keys = append(sets, set), append(keys, fmt.Sprintf("%s[%d]", key, i))
		}
	}
	add("runtimeConfig.ipRanges", c.RuntimeConfig.IPRanges)
	if c.IPAM.Subnet.IsValid() || c.IPAM.Ranges == nil && c.IPAM.rangeConf != (rangeConf{}) {
		sets, keys = append(sets, ipam.RangeSet{c.IPAM.toRange()}), append(keys, "ipam")
	}
	add("ipam.ranges", c.IPAM.Ranges)
	if len(sets) == 0 {
		return nil, cni.Invalid(data, "ipam.ranges", `no IP ranges specified: want ranges, like [[{"subnet": "10.1.0.0/16"}]], or subnet`)
	}
	done, err := ipam.CompleteSets(sets)
	if e, ok := errors.AsType[*ipam.FieldError](err); ok {
		return nil, cni.Invalid(data, fieldKey(keys[e.Set], e), e.Problem)
	}
	return done, err
}

// fieldKey returns the path of the rejected value.
func fieldKey(key string, e *ipam.FieldError) string {
	if key == "ipam" {
		if e.Field == "" {
			return "ipam.subnet"
		}
		return "ipam." + e.Field
	}
	if e.Range >= 0 {
		key += fmt.Sprintf("[%d]", e.Range)
	}
	if e.Field != "" {
		key += "." + e.Field
	}
	return key
}
