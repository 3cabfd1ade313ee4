package validate

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	ipamplugins "github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/plugins/link"
)

// pool is a range of addresses from which host-local gives each one to a single container of its network.
type pool struct {
	key         string // in the file
	place       string // where two containers must not have the same address
	first, last netip.Addr
}

// pools returns the ranges of a plugin whose containers share a bridge, or the host's routes, with those of other networks.
func pools(at string, conf *libcni.NetworkConfig, request []byte) (list []pool) {
	places := map[string]string{"bridge": "the bridge " + cmp.Or(text(request, "bridge"), link.DefaultBridge), "ptp": "the host"}
	place := places[conf.Network.Type]
	if vlan, ok := rawjson.Find(request, "vlan"); ok && place != "" {
		place += ", VLAN " + string(vlan.Raw)
	}
	if place == "" || conf.Network.IPAM.Type != "host-local" {
		return nil
	}
	_, sets, err := ipamplugins.HostLocalRanges(request)
	if err != nil {
		return nil // its validation reports that
	}
	for _, set := range sets {
		for _, r := range set {
			list = append(list, pool{below(at, "ipam"), place, r.Start, r.End})
		}
	}
	return list
}

// findSharedAddresses warns of networks in one directory that give the same addresses in one place.
func findSharedAddresses(all []Report) {
	type network struct {
		*Report
		pool
	}
	var seen []network
	for i := range all {
		r := &all[i]
		for _, p := range r.pools {
			for _, other := range seen {
				if other.place != p.place || other.Network == r.Network || filepath.Dir(other.File) != filepath.Dir(r.File) || p.last.Less(other.first) || other.last.Less(p.first) {
					continue
				}
				r.Warnings = add(r.Warnings, r.data, p.key, fmt.Sprintf("network %s (%s) gives the same addresses on %s: two containers can get one address. Use another subnet or bridge", other.Network, other.File, p.place))
			}
		}
		for _, p := range r.pools {
			seen = append(seen, network{r, p})
		}
	}
}
