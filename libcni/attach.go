package libcni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
)

// AddNetworkList attaches a container to a network and returns the last plugin's result. After an error the caller must
// run DEL. Only if the context ended, AddNetworkList runs DEL itself, because the caller may have no time left. It does
// not if another ADD of the same attachment has succeeded.
func (c *CNIConfig) AddNetworkList(ctx context.Context, list *NetworkConfigList, rt *RuntimeConf) (*cni.Result, error) {
	return c.add(ctx, list.network(), list.Plugins, list.whole(), rt)
}

// AddNetwork is AddNetworkList for a single plugin.
func (c *CNIConfig) AddNetwork(ctx context.Context, net *NetworkConfig, rt *RuntimeConf) (*cni.Result, error) {
	return c.add(ctx, net.network(), []*NetworkConfig{net}, net.Bytes, rt)
}

// CheckNetworkList checks an attachment against the result of its ADD.
func (c *CNIConfig) CheckNetworkList(ctx context.Context, list *NetworkConfigList, rt *RuntimeConf) error {
	return c.check(ctx, list.network(), list.Plugins, list.DisableCheck, rt)
}

// CheckNetwork is CheckNetworkList for a single plugin.
func (c *CNIConfig) CheckNetwork(ctx context.Context, net *NetworkConfig, rt *RuntimeConf) error {
	return c.check(ctx, net.network(), []*NetworkConfig{net}, false, rt)
}

// DelNetworkList detaches a container, the last plugin first. It stops at the first failure and keeps the cache for the
// next try.
func (c *CNIConfig) DelNetworkList(ctx context.Context, list *NetworkConfigList, rt *RuntimeConf) error {
	return c.detach(ctx, list.network(), list.Plugins, rt)
}

// DelNetwork is DelNetworkList for a single plugin.
func (c *CNIConfig) DelNetwork(ctx context.Context, net *NetworkConfig, rt *RuntimeConf) error {
	return c.detach(ctx, net.network(), []*NetworkConfig{net}, rt)
}

func (c *CNIConfig) add(ctx context.Context, n network, plugins []*NetworkConfig, conf []byte, rt *RuntimeConf) (*cni.Result, error) {
	paths, err := c.prepare(n, plugins, rt)
	if err != nil {
		return nil, err
	}
	end, err := c.adding.begin(ctx, n.attached(rt), true)
	if err != nil {
		return nil, err
	}
	result, err := c.addBegun(ctx, n, plugins, paths, conf, rt, end)
	if err != nil {
		return nil, errors.Join(err, c.cleanUp(ctx, n, plugins, rt))
	}
	return result, nil
}

func (c *CNIConfig) addBegun(ctx context.Context, n network, plugins []*NetworkConfig, paths []string, conf []byte, rt *RuntimeConf, end func(error)) (_ *cni.Result, err error) {
	defer func() { end(err) }()
	result, failed, err := c.addAll(ctx, n, plugins, paths, rt)
	if err != nil {
		return nil, pluginError(n, plugins[failed], "add", err)
	}
	if err := c.writeCache(n, conf, rt, result); err != nil {
		return nil, fmt.Errorf("failed to set network %q cached result: %w", n.name, err)
	}
	return result, nil
}

// addAll runs the plugins, together if the Exec supports it. With an error it returns the position of the failed
// plugin.
func (c *CNIConfig) addAll(ctx context.Context, n network, plugins []*NetworkConfig, paths []string, rt *RuntimeConf) (result *cni.Result, failed int, err error) {
	if exec, ok := c.executor().(invoke.ListExec); ok {
		out, failed, err := exec.ExecList(ctx, n.members(plugins, paths, nil, rt), c.args("ADD", rt))
		if err != nil {
			return nil, failed, err
		}
		last := len(plugins) - 1
		result, err = invoke.DecodeResult(n.version, paths[last], out)
		return result, last, err
	}
	for i, p := range plugins {
		if result, err = c.addOne(ctx, n, p, paths[i], result, rt); err != nil {
			return nil, i, err
		}
	}
	return result, 0, nil
}

func (c *CNIConfig) addOne(ctx context.Context, n network, p *NetworkConfig, path string, prev *cni.Result, rt *RuntimeConf) (*cni.Result, error) {
	req, err := n.attachment(p, prev, rt)
	if err != nil {
		return nil, err
	}
	return invoke.ExecPluginWithResult(ctx, path, req, c.args("ADD", rt), c.executor())
}

// cleanupTime bounds the DEL after an ADD whose context ended.
const cleanupTime = 30 * time.Second

// cleanUp undoes an ADD whose context ended, unless another ADD of the attachment has succeeded or is working.
func (c *CNIConfig) cleanUp(ctx context.Context, n network, plugins []*NetworkConfig, rt *RuntimeConf) error {
	if ctx.Err() == nil || c.lookup(n, rt) != nil {
		return nil
	}
	end, alone := c.adding.collect(n.attached(rt))
	if !alone {
		return nil
	}
	defer end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	return c.del(ctx, n, plugins, rt)
}

func (c *CNIConfig) check(ctx context.Context, n network, plugins []*NetworkConfig, disabled bool, rt *RuntimeConf) error {
	if !cni.AtLeast(n.version, "0.4.0") {
		return fmt.Errorf("configuration version %q %w", n.version, ErrorCheckNotSupp)
	}
	if disabled {
		return nil
	}
	paths, err := c.prepare(n, plugins, rt)
	if err != nil {
		return err
	}
	prev := c.cachedResult(n, rt)
	return c.runAll(ctx, n, plugins, paths, "CHECK", prev, rt)
}

func (c *CNIConfig) detach(ctx context.Context, n network, plugins []*NetworkConfig, rt *RuntimeConf) error {
	end, err := c.adding.begin(ctx, n.attached(rt), false)
	if err != nil {
		return err
	}
	defer end(nil)
	return c.del(ctx, n, plugins, rt)
}

func (c *CNIConfig) del(ctx context.Context, n network, plugins []*NetworkConfig, rt *RuntimeConf) error {
	paths, err := c.prepare(n, plugins, rt)
	if err != nil {
		return err
	}
	var prev *cni.Result // DEL gets it since 0.4.0
	if cni.AtLeast(n.version, "0.4.0") {
		prev = c.cachedResult(n, rt)
	}
	if err := c.runAll(ctx, n, plugins, paths, "DEL", prev, rt); err != nil {
		return err
	}
	c.forget(n, rt)
	return nil
}

// runAll runs CHECK or, from the last plugin to the first, DEL.
func (c *CNIConfig) runAll(ctx context.Context, n network, plugins []*NetworkConfig, paths []string, command string, prev *cni.Result, rt *RuntimeConf) error {
	verb := map[string]string{"CHECK": "check", "DEL": "delete"}[command]
	if exec, ok := c.executor().(invoke.ListExec); ok {
		if _, failed, err := exec.ExecList(ctx, n.members(plugins, paths, prev, rt), c.args(command, rt)); err != nil {
			return pluginError(n, plugins[failed], verb, err)
		}
		return nil
	}
	for i := range plugins {
		if command == "DEL" {
			i = len(plugins) - 1 - i
		}
		if err := c.run(ctx, n, plugins[i], paths[i], command, prev, rt); err != nil {
			return pluginError(n, plugins[i], verb, err)
		}
	}
	return nil
}

func (c *CNIConfig) run(ctx context.Context, n network, p *NetworkConfig, path, command string, prev *cni.Result, rt *RuntimeConf) error {
	req, err := n.attachment(p, prev, rt)
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, req, c.args(command, rt), c.executor())
}

// prepare does everything that can fail before the first plugin runs.
func (c *CNIConfig) prepare(n network, plugins []*NetworkConfig, rt *RuntimeConf) ([]string, error) {
	if err := rt.validate(n); err != nil {
		return nil, err
	}
	if len(plugins) == 0 {
		return nil, fmt.Errorf("network %q has no plugins", n.name)
	}
	return c.findAll(plugins)
}
