package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/install"
	"github.com/fairlead/fairlead/libcni"
)

// networkFile is the network that install is asked for: what a host's containers need.
func (i *installation) networkFile() (install.File, error) {
	if i.confDir == "" {
		i.confDir = i.app.confDir()
	}
	dir, err := filepath.Abs(i.confDir)
	if err != nil {
		return install.File{}, err
	}
	if err := cni.ValidateNetworkName(i.network); err != nil {
		return install.File{}, &usageError{"--network: " + err.Error(), "Type: fairlead install --help"}
	}
	file := filepath.Join(dir, networkPrefix+i.network+".conflist")
	if other := i.sameName(dir, file); other != "" {
		return install.File{}, fmt.Errorf("%s has a network %s already\nRemove it, or choose another name", other, i.network)
	}
	data, err := i.networkList()
	if err == nil && i.fused {
		var list *libcni.NetworkConfigList
		if list, err = libcni.ConfListFromBytes(data); err == nil {
			data, err = fused(list)
		}
	}
	return install.File{Path: file, Data: data, Mode: 0o644}, err
}

// sameName is another file with a network of the same name: a runtime would take the
// first.
func (i *installation) sameName(dir, file string) string {
	files, err := libcni.ConfFiles(dir, confExtensions())
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	for _, f := range files {
		if list, err := libcni.ConfListFromFile(f); err == nil && list.Name == i.network && f != file {
			return f
		}
	}
	return ""
}

func (i *installation) networkList() ([]byte, error) {
	type object = map[string]any
	var ranges []any
	routes := []any{}
	for _, s := range i.subnets {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("--subnet %q: want an address with its prefix length, like 10.20.0.0/16", s), "Type: fairlead install --help"}
		}
		everywhere := "0.0.0.0/0"
		if p.Addr().Is6() {
			everywhere = "::/0"
		}
		ranges = append(ranges, []any{object{"subnet": p.Masked().String()}})
		routes = append(routes, object{"dst": everywhere})
	}
	bridge := "cni-" + i.network
	if len(bridge) > 15 {
		bridge = bridge[:15]
	}
	data, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "cniVersions": []string{"0.4.0", "1.0.0", "1.1.0"}, "name": i.network,
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
