// Package network writes the configuration of a network for the containers of one host.
package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"

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
// limits and firewall rules. It fails if another file has a network of this name.
func File(dir string, o Options) (install.File, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return install.File{}, err
	}
	file := filepath.Join(dir, filePrefix+o.Name+".conflist")
	if other := sameName(dir, file, o.Name); other != "" {
		return install.File{}, fmt.Errorf("%s has a network %s already\nRemove it, or choose another name", other, o.Name)
	}
	data, err := list(o)
	if err == nil && o.Fused {
		var list *libcni.NetworkConfigList
		if list, err = libcni.ConfListFromBytes(data); err == nil {
			data, err = fuse.Fuse(list)
		}
	}
	return install.File{Path: file, Data: data, Mode: 0o644}, err
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

func list(o Options) ([]byte, error) {
	type object = map[string]any
	var ranges []any
	routes := []any{}
	for _, p := range o.Subnets {
		everywhere := "0.0.0.0/0"
		if p.Addr().Is6() {
			everywhere = "::/0"
		}
		ranges = append(ranges, []any{object{"subnet": p.Masked().String()}})
		routes = append(routes, object{"dst": everywhere})
	}
	bridge := "cni-" + o.Name
	if len(bridge) > 15 { // the longest name of a link
		bridge = bridge[:15]
	}
	data, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "cniVersions": []string{"0.4.0", "1.0.0", "1.1.0"}, "name": o.Name,
		"plugins": []any{
			object{"type": "bridge", "bridge": bridge, "isGateway": true, "ipMasq": true, "hairpinMode": true,
				"ipam": object{"type": "host-local", "ranges": ranges, "routes": routes}},
			object{"type": "portmap", "capabilities": object{"portMappings": true}},
			object{"type": "bandwidth", "capabilities": object{"bandwidth": true}},
			object{"type": "firewall"},
			object{"type": "tuning", "capabilities": object{"mac": true}},
		},
	}, "", "  ")
	return append(data, '\n'), err
}
