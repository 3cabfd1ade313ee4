package delegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/podnet/request"
)

// selected is the configuration of a network that a pod selects.
type selected struct {
	config   []byte // a plugin or a list of plugins
	resource string // resource whose devices belong to the network
}

// find returns the configuration of a network: the NetworkAttachmentDefinition if the network has a namespace, else a
// file of the configuration directories.
func (c *podCall) find(ctx context.Context, n *request.Network) (selected, error) {
	if n.Namespace == "" {
		config, err := c.file(n.Name)
		return selected{config: config}, err
	}
	d, err := c.definition(ctx, n)
	if err != nil {
		return selected{}, err
	}
	if d.Problem != "" {
		return selected{}, cni.Errorf(cni.CodeInvalidNetworkConfig, "NetworkAttachmentDefinition %s/%s: %s", n.Namespace, n.Name, d.Problem)
	}
	out := selected{[]byte(d.Config), d.Resource}
	if strings.TrimSpace(d.Config) == "" {
		if out.config, err = c.file(n.Name); err != nil {
			return out, fmt.Errorf("NetworkAttachmentDefinition %s/%s has no spec.config: %w", n.Namespace, n.Name, err)
		}
	}
	if err := cni.Check(out.config); err != nil {
		return out, fmt.Errorf("spec.config of NetworkAttachmentDefinition %s/%s: %w", n.Namespace, n.Name, err)
	}
	return out, nil
}

// definition reads a NetworkAttachmentDefinition from disk. If the agent has not written it yet, or if the file is
// damaged, it asks the agent.
func (c *podCall) definition(ctx context.Context, n *request.Network) (*podstate.Definition, error) {
	d, onDisk := c.state.Definition(n.Namespace, n.Name)
	if onDisk == nil {
		return d, nil
	}
	if errors.Is(onDisk, fs.ErrNotExist) {
		onDisk = nil
	}
	d = &podstate.Definition{}
	err := c.ask(ctx, podstate.OpDefinition, podstate.DefinitionArgs{Namespace: n.Namespace, Name: n.Name}, d)
	if err != nil {
		err = errors.Join(err, onDisk)
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s/%s: %w", n.Namespace, n.Name, err)
	}
	return d, nil
}

// ask asks the agent. Without an agent, the runtime should try again.
func (c *podCall) ask(ctx context.Context, op string, args, result any) error {
	err := c.dir.Call(ctx, op, args, result)
	if _, ok := errors.AsType[*local.AwayError](err); ok {
		return cni.Errorf(cni.CodeTryAgainLater, "this node does not have it yet, and %w", err)
	}
	if e, ok := errors.AsType[*local.Error](err); ok {
		return cni.Errorf(e.Code, "%w", err)
	}
	return err
}

// file returns the network with a name from the configuration directories.
func (c *podCall) file(name string) ([]byte, error) {
	var unreadable []error
	for _, dir := range c.confDirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the directory does not exist on every node
		}
		for _, e := range confFiles(entries, ".conflist", ".conf", ".json") {
			raw, err := readConf(filepath.Join(dir, e))
			if err != nil {
				unreadable = append(unreadable, err)
				continue
			}
			if conf, err := rawjson.ParseObject(raw); err == nil && conf.String("name") == name {
				return withDropIns(raw, conf, filepath.Join(dir, name))
			}
		}
	}
	err := cni.Errorf(cni.CodeInvalidNetworkConfig, "no file in %s has a network with the name %q: put its configuration there", strings.Join(c.confDirs, " or "), name)
	return nil, errors.Join(append([]error{err}, unreadable...)...)
}

// confFiles returns the names of the files with an extension. Like runtimes, it skips FIFOs: to read one would wait for a
// writer.
func confFiles(entries []os.DirEntry, extensions ...string) (names []string) {
	for _, e := range entries {
		if (e.Type().IsRegular() || e.Type() == fs.ModeSymlink) && slices.Contains(extensions, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names
}

func readConf(path string) ([]byte, error) {
	raw, err := plainfile.Read(path)
	if err == nil {
		err = cni.Check(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return raw, nil
}

// withDropIns returns a network's configuration, raw, which conf is parsed from. To a list, it adds the plugins of the files *.conf in the directory
// with the network's name, unless the list has loadOnlyInlinedPlugins. Source: specification 1.1.0, section 1.
func withDropIns(raw []byte, conf *rawjson.Object, dir string) ([]byte, error) {
	if _, isPlugin := conf.Get("type"); isPlugin || isTrue(raw, "loadOnlyInlinedPlugins") {
		return raw, nil
	}
	entries, _ := os.ReadDir(dir) // few networks have the directory
	files := confFiles(entries, ".conf")
	if len(files) == 0 {
		return raw, nil
	}
	var plugins [][]byte
	if list, ok := conf.Get("plugins"); ok {
		inlined, err := rawjson.Elements(list)
		if err != nil {
			return nil, cni.Invalid(raw, "plugins", "want the plugins of the list")
		}
		for _, e := range inlined {
			plugins = append(plugins, e.Raw)
		}
	}
	for _, name := range files {
		plugin, err := readConf(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, plugin)
	}
	conf.SetArray("plugins", plugins)
	return conf.Bytes(), nil
}

// devices are the devices of a pod that no network has yet, by resource.
type devices map[string][]string

// next returns the next device of a resource. A pod with several networks of one resource gets them in the kubelet's
// order. It returns "" if the kubelet gave the pod no device of the resource: not every resource has a device plugin. Some
// only say on which nodes a bridge exists.
func (c *podCall) next(ctx context.Context, have devices, r *podRequest, resource string) (string, error) {
	if _, asked := have[resource]; !asked {
		var answer podstate.DevicesResult
		if err := c.ask(ctx, podstate.OpDevices, podstate.DevicesArgs{Namespace: r.Namespace, Name: r.Name, Resource: resource}, &answer); err != nil {
			return "", fmt.Errorf("the pod's devices of resource %s: %w", resource, err)
		}
		if len(answer.IDs) == 0 {
			answer.IDs = nil // an empty list is one whose devices networks have taken
		}
		have[resource] = answer.IDs
	}
	if have[resource] == nil {
		return "", nil
	}
	if len(have[resource]) == 0 {
		return "", cni.Errorf(cni.CodeInvalidEnvironment, "the pod has no device of resource %s left: request one for each such network in the resources of a container", resource)
	}
	id := have[resource][0]
	have[resource] = have[resource][1:]
	return id, nil
}
