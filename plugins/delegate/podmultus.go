package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/plainfile"
)

// Multus records the networks of a pod in a file with the container's ID, and keeps results as libcni does. A node can
// switch to fairlead-pod while pods run, because DEL reads both.

// multusNetwork is an element of Multus' file.
type multusNetwork struct {
	Name   string // "NAMESPACE/NAME"
	IfName string `json:"ifnameRequest"`
	Bytes  []byte // the network's configuration

	// For the default network of a file, Multus v4.2 keeps only the plugins' types in Bytes, and all of it here.
	CNINetworkConfigList struct {
		Name, CNIVersion string
		Plugins          []struct{ Bytes []byte }
	}
}

// config returns the network's configuration.
func (n *multusNetwork) config() []byte {
	l := &n.CNINetworkConfigList
	if len(l.Plugins) == 0 {
		return n.Bytes
	}
	list, _ := rawjson.ParseObject([]byte("{}"))
	list.SetString("cniVersion", l.CNIVersion)
	list.SetString("name", l.Name)
	var plugins [][]byte
	for _, p := range l.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	setPlugins(list, plugins)
	return list.Bytes()
}

func (c *podCall) multusDir() string {
	return filepath.Join(filepath.Dir(c.dir.Root()), "multus")
}

func (c *podCall) multusFile() string { return filepath.Join(c.multusDir(), c.args.ContainerID) }

// ofMultus returns the networks that Multus attached to the pod, or nil if Multus attached nothing.
func (c *podCall) ofMultus() (*podstate.Pod, error) {
	raw, err := plainfile.Read(c.multusFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var networks []multusNetwork
	if cni.Decode(raw, &networks) != nil || len(networks) == 0 {
		networks = c.multusCached()
	}
	record := &podstate.Pod{ContainerID: c.args.ContainerID, IfName: c.args.IfName, Network: c.network, Attached: true}
	for i, n := range networks {
		a, err := c.multusAttachment(i, n)
		if err != nil {
			return nil, fmt.Errorf("network %s in %s: %w", n.Name, c.multusFile(), err)
		}
		record.Attachments = append(record.Attachments, *a)
	}
	return record, nil
}

// multusCached returns the pod's networks from the cache of results, the default network first. Multus does not write its
// file atomically, so the file may be empty after a power failure, and the pod has to end all the same.
func (c *podCall) multusCached() (out []multusNetwork) {
	first := multusNetwork{Name: c.network, IfName: c.args.IfName, Bytes: c.args.StdinData}
	for _, file := range c.multusResults() {
		var cached struct {
			ContainerID, NetworkName, IfName string
			Config                           []byte
		}
		raw, err := plainfile.Read(file)
		if err != nil || cni.Decode(raw, &cached) != nil || cached.ContainerID != c.args.ContainerID {
			continue
		}
		n := multusNetwork{Name: cached.NetworkName, IfName: cached.IfName, Bytes: cached.Config}
		if _, err := c.multusAttachment(1, n); err != nil {
			continue
		}
		if n.IfName == c.args.IfName {
			first = n
		} else {
			out = append(out, n)
		}
	}
	return slices.Insert(out, 0, first)
}

// multusAttachment returns a network of Multus' file. The first is the default network.
func (c *podCall) multusAttachment(i int, n multusNetwork) (*podstate.Attachment, error) {
	list, err := listOf(n.config(), n.Name)
	if err != nil {
		return nil, err
	}
	a := &podstate.Attachment{Name: n.Name, IfName: n.IfName, Default: i == 0, Config: list.Bytes()}
	if a.IfName == "" && a.Default {
		a.IfName = c.args.IfName
	} else if a.IfName == "" {
		a.IfName = "net" + strconv.Itoa(i)
	}
	cached, err := plainfile.Read(filepath.Join(c.multusDir(), "results", list.String("name")+"-"+c.args.ContainerID+"-"+a.IfName))
	if err == nil {
		if v, ok := rawjson.Find(cached, "result"); ok && cni.Check(v.Raw) == nil {
			a.Result = v.Raw
		}
	}
	return a, cni.ValidateInterfaceName(a.IfName)
}

// multusResults returns the files with the results of the pod's networks.
func (c *podCall) multusResults() []string {
	files, _ := filepath.Glob(filepath.Join(c.multusDir(), "results", "*-"+c.args.ContainerID+"-*")) // the pattern is well-formed
	return files
}

// forgetMultus removes the files of Multus about the pod's networks.
func (c *podCall) forgetMultus() {
	for _, file := range append(c.multusResults(), c.multusFile()) {
		_ = os.Remove(file)
	}
}
