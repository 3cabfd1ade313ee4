package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// CNICacheV1 is the kind of a cache file.
const CNICacheV1 = "cniCacheV1"

// cached is a cache file; other libraries share its format.
type cached struct {
	Kind           string          `json:"kind"`
	ContainerID    string          `json:"containerId"`
	Config         []byte          `json:"config"` // base64
	IfName         string          `json:"ifName"`
	NetworkName    string          `json:"networkName"`
	NetNS          string          `json:"netns,omitempty"`
	CniArgs        [][2]string     `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]any  `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
}

// GetNetworkListCachedResult returns the result of the attachment's ADD, or nil if it is not cached.
func (c *CNIConfig) GetNetworkListCachedResult(list *NetworkConfigList, rt *RuntimeConf) (*cni.Result, error) {
	return c.cachedResult(list.network(), rt), nil
}

// GetNetworkCachedResult is GetNetworkListCachedResult for a single plugin.
func (c *CNIConfig) GetNetworkCachedResult(net *NetworkConfig, rt *RuntimeConf) (*cni.Result, error) {
	return c.cachedResult(net.network(), rt), nil
}

// GetNetworkListCachedConfig returns the configuration of the attachment's ADD, and rt with that ADD's arguments. Both
// are nil if it is not cached.
func (c *CNIConfig) GetNetworkListCachedConfig(list *NetworkConfigList, rt *RuntimeConf) ([]byte, *RuntimeConf, error) {
	return c.cachedConfig(list.network(), rt)
}

// GetNetworkCachedConfig is GetNetworkListCachedConfig for a single plugin.
func (c *CNIConfig) GetNetworkCachedConfig(net *NetworkConfig, rt *RuntimeConf) ([]byte, *RuntimeConf, error) {
	return c.cachedConfig(net.network(), rt)
}

// GetCachedAttachments returns a container's cached attachments, or all if containerID is "".
func (c *CNIConfig) GetCachedAttachments(containerID string) ([]*NetworkAttachment, error) {
	return c.cachedAttachments(containerID, time.Time{})
}

// cachedAttachments returns those that were written after a time.
func (c *CNIConfig) cachedAttachments(containerID string, after time.Time) ([]*NetworkAttachment, error) {
	dir := filepath.Join(c.dir(&RuntimeConf{}), "results")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cached attachments: %w", err)
	}
	var list []*NetworkAttachment
	for _, e := range entries {
		if e.IsDir() || !strings.Contains(e.Name(), "-"+containerID) {
			continue
		}
		if file, err := e.Info(); err != nil || !file.ModTime().After(after) {
			continue // just deleted, or older
		}
		info, err := readCached(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // just detached
		}
		if err != nil {
			c.warn("cached attachment skipped", err)
			continue
		}
		if info.Kind == CNICacheV1 && (containerID == "" || info.ContainerID == containerID) {
			list = append(list, info.attachment())
		}
	}
	return list, nil
}

func (i *cached) attachment() *NetworkAttachment {
	return &NetworkAttachment{
		ContainerID:    i.ContainerID,
		Network:        i.NetworkName,
		IfName:         i.IfName,
		Config:         i.Config,
		NetNS:          i.NetNS,
		CniArgs:        i.CniArgs,
		CapabilityArgs: i.CapabilityArgs,
	}
}

// List returns the configuration that the attachment was added with. A single plugin becomes a list of one. A
// configuration of another network is an error.
func (a *NetworkAttachment) List() (*NetworkConfigList, error) {
	list, err := ConfListFromBytes(a.Config)
	if err != nil || len(list.Plugins) == 0 {
		single, err := ConfFromBytes(a.Config)
		if err != nil {
			return nil, err
		}
		if list, err = ConfListFromConf(single); err != nil {
			return nil, err
		}
	}
	if list.Name != a.Network {
		return nil, fmt.Errorf("it belongs to network %s, not %s", list.Name, a.Network)
	}
	return list, nil
}

func (c *CNIConfig) cachedResult(n network, rt *RuntimeConf) *cni.Result {
	info := c.lookup(n, rt)
	if info == nil || len(info.Result) == 0 {
		return nil
	}
	result, err := wire.Decode(n.version, info.Result)
	if err != nil {
		c.warn("cached result of network "+n.name+" counts as absent", err)
		return nil
	}
	result.CNIVersion = n.version
	return result
}

func (c *CNIConfig) cachedConfig(n network, rt *RuntimeConf) ([]byte, *RuntimeConf, error) {
	info := c.lookup(n, rt)
	if info == nil || info.Kind != CNICacheV1 {
		return nil, nil, nil
	}
	with := *rt
	with.Args, with.CapabilityArgs = info.CniArgs, info.CapabilityArgs
	return info.Config, &with, nil
}

// lookup returns an attachment's cache file. An unreadable file counts as absent, with a warning: it must not block a
// DEL.
func (c *CNIConfig) lookup(n network, rt *RuntimeConf) *cached {
	file := c.file(n, rt)
	info, err := readCached(file)
	if err == nil && !info.belongs(n, rt) {
		// With hyphens in names, several attachments can have the same file name.
		err = fmt.Errorf("%s belongs to network %s, container %s, interface %s", file, info.NetworkName, info.ContainerID, info.IfName)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.warn("cached attachment counts as absent", err)
		return nil
	}
	return info
}

// belongs reports whether the file is the attachment's. A legacy file without a kind has only the result and matches
// all.
func (i *cached) belongs(n network, rt *RuntimeConf) bool {
	return i.Kind != CNICacheV1 || i.NetworkName == n.name && i.ContainerID == rt.ContainerID && i.IfName == rt.IfName
}

func readCached(file string) (*cached, error) {
	data, err := readRegular(file)
	if err != nil {
		return nil, err
	}
	info, err := parseCached(data)
	if err != nil {
		return nil, &CacheError{file, !json.Valid(data), err}
	}
	return info, nil
}

// maxCached limits the size of a cache file in bytes.
const maxCached = 64 << 20

// readRegular reads a cache file. It waits for no writer of a FIFO.
func readRegular(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.IsDir() && !info.Mode().IsRegular() || info.Size() > maxCached {
		return nil, &CacheError{file, true, errors.New("want a regular file of at most 64 MiB")}
	}
	return io.ReadAll(f)
}

func parseCached(data []byte) (*cached, error) {
	info := &cached{}
	if err := cni.Decode(data, info); err != nil {
		return nil, err
	}
	switch info.Kind {
	case CNICacheV1:
		return info, nil
	case "":
		return &cached{Result: data}, nil
	}
	return nil, cni.Invalid(data, "kind", fmt.Sprintf("want %q", CNICacheV1))
}

func (c *CNIConfig) dir(rt *RuntimeConf) string {
	switch {
	case c.cacheDir != "":
		return c.cacheDir
	case rt.CacheDir != "":
		return rt.CacheDir
	}
	return CacheDir
}

func (c *CNIConfig) file(n network, rt *RuntimeConf) string {
	return filepath.Join(c.dir(rt), "results", n.name+"-"+rt.ContainerID+"-"+rt.IfName)
}

func (c *CNIConfig) fileOf(a *NetworkAttachment) string {
	return c.file(network{name: a.Network}, &RuntimeConf{ContainerID: a.ContainerID, IfName: a.IfName})
}
