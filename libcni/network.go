package libcni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
)

// GCNetworkList removes everything of a network that no valid attachment
// owns: first cached attachments, by DEL, then whatever the plugins find. It
// goes on after an error and reports them all. What is being added, or was since
// the GC began, is left alone, listed or not.
func (c *CNIConfig) GCNetworkList(ctx context.Context, list *NetworkConfigList, args *GCArgs) error {
	if list.DisableGC {
		return nil
	}
	began := time.Now()
	defer c.adding.watch()()
	var valid []cni.Attachment
	if args != nil {
		valid = args.ValidAttachments
	}
	errs := []error{c.delStale(ctx, list, valid, began)}
	if !cni.AtLeast(list.CNIVersion, "1.1.0") {
		return errors.Join(errs...)
	}
	for _, p := range list.Plugins {
		if err := c.gcOne(ctx, list, p, valid, began); err != nil {
			errs = append(errs, pluginError(list.network(), p, "gc", err))
		}
	}
	return errors.Join(errs...)
}

func (c *CNIConfig) gcOne(ctx context.Context, list *NetworkConfigList, p *NetworkConfig, valid []cni.Attachment, began time.Time) error {
	listed := time.Now()
	spared, err := c.spared(list.Name, valid, began)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(spared)
	if err != nil {
		return fmt.Errorf("encode valid attachments: %w", err)
	}
	// The second key was the specification's by mistake, and plugins read it.
	keys := map[string]json.RawMessage{"cni.dev/valid-attachments": raw, "cni.dev/attachments": raw}
	return c.runOne(ctx, list.network(), p, gcArgs{c.args("GC", &RuntimeConf{}), listed}, keys)
}

// gcArgs tell a plugin of ours when its list was made: until it starts, on a busy
// host, others may be added.
type gcArgs struct {
	*invoke.Args
	listed time.Time
}

func (a gcArgs) AsEnv() []string {
	return append(a.Args.AsEnv(), invoke.ListedVariable+"="+strconv.FormatInt(a.listed.UnixNano(), 10))
}

// delStale deletes one after the other: the caller's thread may be in a namespace
// of its own, which another goroutine's is not.
func (c *CNIConfig) delStale(ctx context.Context, list *NetworkConfigList, valid []cni.Attachment, began time.Time) error {
	attachments, err := c.GetCachedAttachments("")
	spared, failed := c.spared(list.Name, valid, began) // later than the list: an ADD that ended between the two is known
	if failed != nil {
		return failed
	}
	errs := []error{err}
	for _, a := range attachments {
		if a.Network != list.Name || slices.Contains(spared, cni.Attachment{ContainerID: a.ContainerID, IfName: a.IfName}) {
			continue
		}
		rt := &RuntimeConf{ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
		end, ok := c.adding.collect(list.network().attached(rt))
		if !ok {
			continue // the caller is at it
		}
		err := c.del(ctx, list.network(), list.Plugins, rt)
		end()
		if err != nil {
			errs = append(errs, fmt.Errorf("delete stale attachment of container %s, interface %s: %w", a.ContainerID, a.IfName, err))
		}
	}
	return errors.Join(errs...)
}

// GetStatusNetworkList returns nil if the network can serve an ADD. The error
// is the first plugin's, with its code: 50 not available, 51 limited.
func (c *CNIConfig) GetStatusNetworkList(ctx context.Context, list *NetworkConfigList) error {
	if !cni.AtLeast(list.CNIVersion, "1.1.0") {
		return nil
	}
	if _, err := c.findAll(list.Plugins); err != nil {
		return err
	}
	for _, p := range list.Plugins {
		if err := c.runOne(ctx, list.network(), p, c.args("STATUS", &RuntimeConf{}), nil); err != nil {
			return err
		}
	}
	return nil
}

// runOne is a call that is about a network, not an attachment.
func (c *CNIConfig) runOne(ctx context.Context, n network, p *NetworkConfig, args invoke.CNIArgs, keys map[string]json.RawMessage) error {
	path, err := c.executor().FindInPath(p.Network.Type, c.Path)
	if err != nil {
		return err
	}
	req, err := n.request(p)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		req.Set(key, keys[key])
	}
	return invoke.ExecPluginWithoutResult(ctx, path, req.Bytes(), args, c.executor())
}

// ValidateNetworkList checks that every plugin is there and speaks the list's
// version, and returns the capabilities that they declare.
func (c *CNIConfig) ValidateNetworkList(ctx context.Context, list *NetworkConfigList) ([]string, error) {
	return c.validate(ctx, list.network(), list.Plugins)
}

// ValidateNetwork is ValidateNetworkList for a single plugin.
func (c *CNIConfig) ValidateNetwork(ctx context.Context, net *NetworkConfig) ([]string, error) {
	return c.validate(ctx, net.network(), []*NetworkConfig{net})
}

func (c *CNIConfig) validate(ctx context.Context, n network, plugins []*NetworkConfig) ([]string, error) {
	var errs []error
	capabilities := map[string]bool{}
	for _, p := range plugins {
		errs = append(errs, c.validateVersion(ctx, p.Network.Type, n.version))
		for capability, enabled := range p.Network.Capabilities {
			if enabled {
				capabilities[capability] = true
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(capabilities)), nil
}

func (c *CNIConfig) validateVersion(ctx context.Context, pluginType, version string) error {
	info, err := c.GetVersionInfo(ctx, pluginType)
	if err != nil {
		return err
	}
	if !slices.Contains(info.SupportedVersions, version) {
		return fmt.Errorf("plugin %s does not support config version %q: it supports %q", pluginType, version, info.SupportedVersions)
	}
	return nil
}

// GetVersionInfo asks a plugin which versions it speaks.
func (c *CNIConfig) GetVersionInfo(ctx context.Context, pluginType string) (invoke.PluginInfo, error) {
	path, err := c.executor().FindInPath(pluginType, c.Path)
	if err != nil {
		return invoke.PluginInfo{}, err
	}
	return invoke.GetVersionInfo(ctx, path, c.executor())
}
