// Package network writes the configuration of a network for the containers of one host.
package network

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/fuse"
	"github.com/fairlead/fairlead/install"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/libcni"
)

// filePrefix puts the file before those of most other software: runtimes use the first file by name.
const filePrefix = "10-"

// Options describe a network.
type Options struct {
	Name    string
	Subnets []netip.Prefix
	Fused   bool // one fairlead-chain in place of the plugins
}

// File returns the file with the network's configuration in a directory: a bridge with masquerading, host ports, bandwidth
// limits and firewall rules. It fails if another file has a network of this name, or one whose addresses overlap.
func File(dir string, o Options) (install.File, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return install.File{}, err
	}
	file := filepath.Join(dir, filePrefix+o.Name+".conflist")
	if other := sameName(dir, file, o.Name); other != "" {
		return install.File{}, fmt.Errorf("%s has a network %s already\nRemove it, or choose another name", other, o.Name)
	}
	if other, p := overlap(dir, o); other != "" {
		return install.File{}, fmt.Errorf("network %s has addresses of %s\nChoose other addresses with --subnet", other, p)
	}
	data, err := plugins(o)
	if err != nil {
		return install.File{}, err
	}
	list, err := libcni.ConfListFromBytes(data)
	if err != nil {
		return install.File{}, err
	}
	if err := check(list); err != nil {
		return install.File{}, err
	}
	if o.Fused {
		data, err = fuse.Fuse(list)
	}
	return install.File{Path: file, Data: data, Mode: 0o644}, err
}

// check returns the error of plugin host-local for the subnets.
func check(list *libcni.NetworkConfigList) error {
	if _, _, err := netconf.HostLocalRanges(list, list.Plugins[0]); err != nil {
		return fmt.Errorf("network %s: %w\nChoose other addresses with --subnet", list.Name, err)
	}
	return nil
}

// sameName returns another file with a network of this name, or "".
func sameName(dir, file, name string) string {
	files, err := libcni.ConfFiles(dir, netconf.Extensions())
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	for _, f := range files {
		if list, err := libcni.ConfListFromFile(f); err == nil && list.Name == name && f != file {
			return f
		}
	}
	return ""
}

// overlap returns another network of the directory, and that of the subnets which overlaps with it, or "".
func overlap(dir string, o Options) (network string, subnet netip.Prefix) {
	for _, list := range netconf.Lists(dir) {
		if list.Name == o.Name {
			continue
		}
		members, _ := netconf.Members(list) // fairlead validate reports errors
		for _, m := range members {
			if m.Network.IPAM.Type != "host-local" {
				continue
			}
			_, sets, _ := netconf.HostLocalRanges(list, m)
			for _, r := range slices.Concat(sets...) {
				if i := slices.IndexFunc(o.Subnets, r.Subnet.Overlaps); i >= 0 {
					return list.Name, o.Subnets[i]
				}
			}
		}
	}
	return "", netip.Prefix{}
}

// bridgeName returns the name of a network's bridge. The name of a link has 15 bytes at most.
func bridgeName(network string) string {
	const prefix = "cni-"
	if len(prefix+network) <= 15 {
		return prefix + network
	}
	return fmt.Sprintf("%s%.11x", prefix, sha256.Sum256([]byte(network)))[:15]
}

// plugins returns the list of a network, not fused. Its first plugin allocates the addresses.
func plugins(o Options) ([]byte, error) {
	type object = map[string]any
	var ranges []any
	routes, families := []any{}, map[string]bool{}
	for _, p := range o.Subnets {
		everywhere := "0.0.0.0/0"
		if p.Addr().Is6() {
			everywhere = "::/0"
		}
		ranges = append(ranges, []any{object{"subnet": p.Masked().String()}})
		if !families[everywhere] {
			routes = append(routes, object{"dst": everywhere})
		}
		families[everywhere] = true
	}
	data, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "cniVersions": []string{"0.4.0", "1.0.0", "1.1.0"}, "name": o.Name,
		"plugins": []any{
			object{"type": "bridge", "bridge": bridgeName(o.Name), "isGateway": true, "ipMasq": true, "hairpinMode": true,
				"ipam": object{"type": "host-local", "ranges": ranges, "routes": routes}},
			object{"type": "portmap", "capabilities": object{"portMappings": true}},
			object{"type": "bandwidth", "capabilities": object{"bandwidth": true}},
			object{"type": "firewall"},
			object{"type": "tuning", "capabilities": object{"mac": true}},
		},
	}, "", "  ")
	return append(data, '\n'), err
}
