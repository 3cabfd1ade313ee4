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

// GCNetworkList removes everything of a network that no valid attachment owns: first cached attachments, by DEL, then
// whatever the plugins find. It continues after errors and returns them all. It keeps attachments that are being added,
// or were added since the GC started or the caller began to make its list, listed or not. It calls the Exec from several
// goroutines at once. If the context ends, it starts no further DEL.
func (c *CNIConfig) GCNetworkList(ctx context.Context, list *NetworkConfigList, args *GCArgs) error {
	if list.DisableGC {
		return nil
	}
	defer c.adding.watch()()
	now := GCArgs{Listed: time.Now()}
	if args != nil {
		began := now.Listed
		if now = *args; now.Listed.IsZero() || now.Listed.After(began) {
			now.Listed = began
		}
	}
	errs := []error{c.delStale(ctx, list, now)}
	if !cni.AtLeast(list.CNIVersion, "1.1.0") {
		return errors.Join(errs...)
	}
	for _, p := range list.Plugins {
		if err := c.gcOne(ctx, list, p, now); err != nil {
			errs = append(errs, pluginError(list.network(), p, "gc", err))
		}
	}
	return errors.Join(errs...)
}

func (c *CNIConfig) gcOne(ctx context.Context, list *NetworkConfigList, p *NetworkConfig, args GCArgs) error {
	kept, err := c.kept(list.Name, args.ValidAttachments, args.Listed)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("encode valid attachments: %w", err)
	}
	// An early text of the specification had the second key by mistake, and plugins read it.
	keys := map[string]json.RawMessage{"cni.dev/valid-attachments": raw, "cni.dev/attachments": raw}
	return c.runOne(ctx, list.network(), p, gcArgs{c.args("GC", &RuntimeConf{}), args.Listed}, keys)
}

// gcArgs tell our plugins when the GC began. An attachment may be added before the last plugin of the list starts.
type gcArgs struct {
	*invoke.Args
	listed time.Time
}

func (a gcArgs) AsEnv() []string {
	return append(a.Args.AsEnv(), invoke.ListedVariable+"="+strconv.FormatInt(a.listed.UnixNano(), 10))
}

// GetStatusNetworkList returns nil if an ADD would work. Otherwise it returns the first plugin's error, with code 50
// (not available) or 51 (limited connectivity).
func (c *CNIConfig) GetStatusNetworkList(ctx context.Context, list *NetworkConfigList) error {
	if !cni.AtLeast(list.CNIVersion, "1.1.0") {
		return nil
	}
	if _, err := c.findAll(list.Plugins); err != nil {
		return err
	}
	for _, p := range list.Plugins {
		if err := c.runOne(ctx, list.network(), p, c.args("STATUS", &RuntimeConf{}), nil); err != nil {
			return list.network().locate(p, err)
		}
	}
	return nil
}

// runOne runs an operation on a network instead of an attachment.
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

// ValidateNetworkList checks that every plugin exists and supports the list's version. It returns the capabilities that
// the plugins declare.
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

// GetVersionInfo asks a plugin which versions it supports.
func (c *CNIConfig) GetVersionInfo(ctx context.Context, pluginType string) (invoke.PluginInfo, error) {
	path, err := c.executor().FindInPath(pluginType, c.Path)
	if err != nil {
		return invoke.PluginInfo{}, err
	}
	return invoke.GetVersionInfo(ctx, path, c.executor())
}
