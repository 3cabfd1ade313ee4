// Package netconf finds network configurations: by name in a directory, or in a file.
package netconf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins/delegate"
	ipamplugins "github.com/fairlead/fairlead/plugins/ipam"
)

// Extensions returns the extensions of the files that runtimes read.
func Extensions() []string { return []string{".conf", ".conflist", ".json"} }

// IsFile reports whether an argument names a file, not a network: it has a slash or a known extension.
func IsFile(arg string) bool {
	return strings.Contains(arg, "/") || slices.Contains(Extensions(), filepath.Ext(arg))
}

// IsList reports whether a file holds a list, by its name or because it has the key plugins and, unlike a fairlead-chain, no
// type.
func IsList(file string, data []byte) bool {
	_, plugins := rawjson.Find(data, "plugins")
	_, typed := rawjson.Find(data, "type")
	return plugins && !typed || filepath.Ext(file) == ".conflist"
}

// Load returns the network that an argument names: the one in a file, or the one with that name in a directory.
func Load(dir, arg string) (*libcni.NetworkConfigList, error) {
	if !IsFile(arg) {
		return libcni.LoadNetworkConf(dir, arg)
	}
	list, err := LoadFile(arg)
	if !errors.Is(err, os.ErrNotExist) {
		return list, err
	}
	if !strings.Contains(arg, "/") { // a network's name may end like a file's
		if list, err := libcni.LoadNetworkConf(dir, arg); err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("read the network's configuration: %w", err)
}

// LoadFile reads a list with its drop-in files, or makes a list of the configuration of a single plugin.
func LoadFile(path string) (*libcni.NetworkConfigList, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if IsList(path, data) {
		return libcni.ConfListFromFile(path)
	}
	conf, err := libcni.ConfFromFile(path)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

// Files replaces each directory in a list of paths by the configuration files in it. It does not verify that the other
// paths exist.
func Files(paths []string) (files []string, err error) {
	for _, path := range paths {
		if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
			files = append(files, path)
			continue
		}
		in, err := libcni.ConfFiles(path, Extensions())
		if err == nil && len(in) == 0 {
			err = libcni.NoConfigsFoundError{Dir: path}
		}
		if err != nil {
			return nil, err
		}
		files = append(files, in...)
	}
	return files, nil
}

// Names returns the sorted names of the networks in a directory. It skips files that are not valid.
func Names(dir string) (names []string) {
	for _, l := range Lists(dir) {
		names = append(names, l.Name)
	}
	return names
}

// Lists returns the networks in a directory, sorted by name. It reads each file once, and skips files that are not valid.
// If several files have the same name, it chooses the one that libcni.LoadNetworkConf chooses.
func Lists(dir string) []*libcni.NetworkConfigList {
	found := map[string]*libcni.NetworkConfigList{}
	add := func(l *libcni.NetworkConfigList, err error) {
		if err == nil && found[l.Name] == nil {
			found[l.Name] = l
		}
	}
	lists, _ := libcni.ConfFiles(dir, []string{".conflist"})
	for _, f := range lists {
		add(libcni.ConfListFromFile(f))
	}
	singles, _ := libcni.ConfFiles(dir, []string{".conf", ".json"})
	for _, f := range singles {
		if c, err := libcni.ConfFromFile(f); err == nil && c.Network.Name != "" {
			add(libcni.ConfListFromConf(c))
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *libcni.NetworkConfigList) int { return strings.Compare(a.Name, b.Name) })
}

// Members returns the plugins of a list. The plugins inside a fairlead-chain or a fairlead-pod replace it.
func Members(list *libcni.NetworkConfigList) (all []*libcni.NetworkConfig, err error) {
	for _, p := range list.Plugins {
		if p.Network.Type != delegate.ChainType && p.Network.Type != delegate.PodType {
			all = append(all, p)
			continue
		}
		members, err := delegate.ChainMembers(p.Bytes)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			conf, err := libcni.ConfFromBytes(m.Raw)
			if err != nil {
				return nil, err
			}
			all = append(all, conf)
		}
	}
	return all, nil
}

// HostLocalRanges returns the directory and the ranges of a plugin of a list, whose IPAM plugin is host-local.
func HostLocalRanges(list *libcni.NetworkConfigList, p *libcni.NetworkConfig) (dataDir string, sets []ipam.RangeSet, err error) {
	req, err := rawjson.ParseObject(p.Bytes)
	if err != nil {
		return "", nil, err
	}
	req.SetString("cniVersion", list.CNIVersion)
	req.SetString("name", list.Name)
	return ipamplugins.HostLocalRanges(req.Bytes())
}
