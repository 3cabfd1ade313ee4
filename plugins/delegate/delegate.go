// Package delegate has the plugins that do nothing themselves. Each writes the configuration of another plugin and
// passes every operation on to it (specification, section 4), in process if this program has that plugin.
package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// conf is a configuration as a map of its keys.
type conf map[string]json.RawMessage

// rewriter is the part of a delegating plugin that differs.
type rewriter interface {
	// rewrite returns the delegate's configuration for a verb (ADD, ...).
	rewrite(verb string, args *skel.CmdArgs) (conf, error)
	// done runs after the delegate's success; the operation started at start.
	done(verb string, args *skel.CmdArgs, start time.Time) error
}

type delegating struct {
	rewriter
	exec *plugin.Exec
}

func serve(name, about string, r rewriter, x *plugin.Exec) skel.Plugin {
	d := delegating{r, x}
	verb := func(v string) func(context.Context, *skel.CmdArgs) error {
		return func(ctx context.Context, args *skel.CmdArgs) error {
			_, err := d.do(ctx, v, args)
			return err
		}
	}
	return skel.Plugin{Name: name, About: about, Funcs: skel.CNIFuncs{
		Add:   func(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) { return d.do(ctx, "ADD", args) },
		Check: verb("CHECK"), Del: verb("DEL"), GC: verb("GC"), Status: verb("STATUS"),
	}}
}

func (d delegating) do(ctx context.Context, verb string, args *skel.CmdArgs) (*cni.Result, error) {
	start := time.Now()
	if verb == "GC" {
		var uptime time.Duration
		ctx, uptime = plugin.GCStart(ctx)
		start = start.Add(uptime - kernel.Uptime())
	}
	c, err := d.rewrite(verb, args)
	if err != nil || c == nil {
		return nil, err
	}
	var typ string
	if err := json.Unmarshal(c["type"], &typ); err != nil {
		return nil, cni.Invalid(args.StdinData, "delegate.type", "want a string: the type of a plugin")
	}
	inner := *args
	if inner.StdinData, err = json.Marshal(c); err != nil {
		return nil, err
	}
	res, err := d.call(ctx, verb, typ, &inner)
	if err != nil {
		relocate(err, inner.StdinData, args.StdinData)
		return nil, fmt.Errorf("delegate %s: %w", typ, err)
	}
	return res, d.done(verb, args, start)
}

// relocate changes the position in a delegate's error from one in the configuration that the delegate got to that in
// outer, the configuration that it is derived from. It removes the position of a value that outer does not have.
func relocate(err error, delegates, outer []byte) {
	if e, ok := errors.AsType[*cni.ConfigError](err); ok && e.Line > 0 {
		path, _ := cni.PathOf(cni.PositionDetails(e.Line, e.Column), delegates)
		e.Line, e.Column = relocated(path, outer)
	} else if e, ok := errors.AsType[*cni.Error](err); ok {
		path, ok := cni.PathOf(e.Details, delegates)
		if !ok {
			return
		}
		e.Details = ""
		if line, column := relocated(path, outer); line > 0 {
			e.Details = cni.PositionDetails(line, column)
		}
	}
}

// relocated looks for the value below "delegate" (flannel), at the same path, and outside of "ipam" (minicni).
func relocated(path string, outer []byte) (line, column int) {
	for _, candidate := range []string{strings.TrimSuffix("delegate."+path, "."), path, strings.TrimPrefix(path, "ipam.")} {
		if v, found := rawjson.Find(outer, candidate); found {
			return rawjson.Position(outer, v.Start)
		}
	}
	return 0, 0
}

// call runs the delegate in process if this program has it, otherwise as a process.
func (d delegating) call(ctx context.Context, verb, typ string, args *skel.CmdArgs) (*cni.Result, error) {
	path, err := invoke.FindInPath(typ, filepath.SplitList(args.Path))
	if err != nil {
		return nil, err
	}
	if p, ok := d.exec.InProcess(path); ok {
		return here(ctx, p.Funcs, verb, args)
	}
	env := environment(verb, args)
	if verb == "ADD" {
		return invoke.ExecPluginWithResult(ctx, path, args.StdinData, env, &d.exec.RawExec)
	}
	return nil, invoke.ExecPluginWithoutResult(ctx, path, args.StdinData, env, &d.exec.RawExec)
}

// environment returns the environment of a process that serves the same call.
func environment(verb string, args *skel.CmdArgs) *invoke.Args {
	return &invoke.Args{
		Command: verb, ContainerID: args.ContainerID, NetNS: args.Netns, IfName: args.IfName,
		PluginArgsStr: args.Args, Path: args.Path,
	}
}

func here(ctx context.Context, f skel.CNIFuncs, verb string, args *skel.CmdArgs) (*cni.Result, error) {
	if verb == "ADD" {
		return f.Add(ctx, args)
	}
	op := map[string]func(context.Context, *skel.CmdArgs) error{"CHECK": f.Check, "DEL": f.Del, "GC": f.GC, "STATUS": f.Status}[verb]
	if op == nil {
		return nil, nil
	}
	return nil, op(ctx, args)
}

// set sets a key unless it is already set.
func (c conf) set(key string, v any) {
	if _, ok := c[key]; !ok {
		c[key], _ = json.Marshal(v) // plain values always marshal
	}
}

// copyRuntimeKeys copies the keys that the runtime sets, and the network's name.
func (c conf) copyRuntimeKeys(from conf) {
	for _, key := range []string{"cniVersion", "name", "runtimeConfig", "prevResult", "cni.dev/valid-attachments", "cni.dev/attachments"} {
		if v, ok := from[key]; ok {
			c[key] = v
		}
	}
}

// below returns a path below the root of the plugins' persistent data; "" is /var/lib/cni.
func below(root string, parts ...string) string {
	if root == "" {
		root = "/var/lib/cni"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}
