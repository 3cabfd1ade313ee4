package delegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	chained "github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/podnet/request"
	"github.com/fairlead/fairlead/skel"
)

// ChainType is the plugin type that runs a whole list in one process.
const ChainType = request.ChainType

// Chain returns the plugin that runs a list's plugins in its own process, in the order in which a runtime would.
// Plugins of other programs run as processes.
func Chain(x *plugin.Exec) skel.Plugin {
	c := chain{x}
	return skel.Plugin{
		Name: ChainType, About: "runs a whole list of plugins in one process; fairlead fuse writes its configuration",
		Funcs: skel.CNIFuncs{
			Add:    c.add,
			Check:  c.check,
			Del:    c.del,
			GC:     c.gc,
			Status: func(ctx context.Context, args *skel.CmdArgs) error { return c.each(ctx, "STATUS", args, false) },
		},
	}
}

type chain struct{ exec *plugin.Exec }

// add runs ADD. If a member fails, it undoes the members before it and what the failed member may have left.
func (c chain) add(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	l, err := c.load(args)
	if err != nil {
		return nil, err
	}
	existed := false
	if c.hasExternal(l.members) {
		owner := ownerOf(l.conf, args)
		unlock, err := attach.Open("").LockChain(ctx, owner) // its process may be the first, and has no reservation
		if err != nil {
			return nil, cni.Errorf(cni.CodeTryAgainLater, "%w", err)
		}
		defer unlock()
		existed = isAttached(owner)
	}
	out, failed, err := c.exec.ExecList(ctx, l.requests("ADD"), environment("ADD", args))
	if err != nil && !existed {
		return nil, errors.Join(l.of(failed, err), c.undo(ctx, l, failed, args))
	}
	if err != nil {
		return nil, l.of(failed, err)
	}
	return invoke.DecodeResult(l.version, ChainType, out)
}

// isAttached reports whether another ADD created the attachment, or is creating it. This ADD must not undo it.
func isAttached(owner kernel.Owner) bool {
	record, err := attach.Open("").Read(owner)
	interrupted := func(p attach.Part) bool { return !p.Done && !p.Adding() }
	return err == nil && record.HasNetns() && !slices.ContainsFunc(record.Parts, interrupted)
}

// hasExternal reports whether a member is a process.
func (c chain) hasExternal(members []ChainMember) bool {
	return slices.ContainsFunc(members, func(m ChainMember) bool {
		_, here := c.exec.InProcess(m.path)
		return !here
	})
}

// undo is for a chain of which a process has run: the in-process plugins before it are committed. Without one, the
// in-process plugins have undone their part already, or did nothing because another ADD has the attachment.
func (c chain) undo(ctx context.Context, l *loaded, last int, args *skel.CmdArgs) error {
	if !c.hasExternal(l.members[:last+1]) {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var errs []error
	members := l.requests("DEL")
	for i := last; i >= 0; i-- {
		if _, _, err := c.exec.ExecList(ctx, members[i:i+1], environment("DEL", args)); err != nil {
			errs = append(errs, fmt.Errorf("undo: %w", l.of(i, err)))
		}
	}
	return errors.Join(errs...)
}

func (c chain) check(ctx context.Context, args *skel.CmdArgs) error {
	_, err := c.together(ctx, "CHECK", args)
	return err
}

// together calls all members at once, and returns them.
func (c chain) together(ctx context.Context, verb string, args *skel.CmdArgs) (*loaded, error) {
	l, err := c.load(args)
	if err != nil {
		return nil, err
	}
	if _, failed, err := c.exec.ExecList(ctx, l.requests(verb), environment(verb, args)); err != nil {
		return nil, l.of(failed, err)
	}
	return l, nil
}

// del runs DEL. If the configuration has no valid plugins, the record of the attachment has them, as far as they are
// Fairlead's: Multus v4.2 passes a list without what is inside its plugins, and ADD refuses an invalid list.
func (c chain) del(ctx context.Context, args *skel.CmdArgs) error {
	if _, err := ChainMembers(args.StdinData); err != nil {
		conf, err := reduced(args.StdinData)
		if err != nil {
			return err
		}
		plugins, err := attachedPlugins(ownerOf(conf, args))
		if err != nil || plugins == nil {
			return err
		}
		setPlugins(conf, plugins)
		args = withConf(args, conf)
	}
	l, err := c.together(ctx, "DEL", args)
	if err != nil {
		return err
	}
	return attach.Open("").ClearChainLock(ownerOf(l.conf, args)) // of a killed ADD
}

func ownerOf(conf *rawjson.Object, args *skel.CmdArgs) kernel.Owner {
	return kernel.Owner{Network: conf.String("name"), ContainerID: args.ContainerID, IfName: args.IfName}
}

// withConf returns arguments with another configuration.
func withConf(args *skel.CmdArgs, conf *rawjson.Object) *skel.CmdArgs {
	again := *args
	again.StdinData = conf.Bytes()
	return &again
}

// reduced returns the keys of a configuration that DEL needs, and those in more. The others may be what ADD refused.
func reduced(data []byte, more ...string) (*rawjson.Object, error) {
	conf, err := rawjson.ParseObject(data)
	if err != nil {
		return nil, cni.Invalid(data, "", "want an object")
	}
	out, _ := rawjson.ParseObject([]byte("{}"))
	for _, key := range append(more, "cniVersion", "name", "type", "prevResult") {
		if raw, found := conf.Get(key); found {
			out.Set(key, raw)
		}
	}
	return out, nil
}

// attachedPlugins returns the configurations that DEL needs to undo an attachment, or nil if there is nothing to undo.
// fairlead-policy has no part in the record.
func attachedPlugins(owner kernel.Owner) (out [][]byte, err error) {
	record, err := attach.Open("").Read(owner)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	add := func(pluginType, ipamType string) {
		o, _ := rawjson.ParseObject([]byte("{}"))
		o.SetString("type", pluginType)
		if ipamType != "" {
			ipam, _ := rawjson.ParseObject([]byte("{}"))
			ipam.SetString("type", ipamType)
			o.Set("ipam", ipam.Bytes())
		}
		out = append(out, o.Bytes())
	}
	if err == nil {
		for _, p := range record.Parts {
			add(p.Plugin, p.IPAM)
		}
	}
	key := podstate.Key{ContainerID: owner.ContainerID, IfName: owner.IfName}
	if _, err := podstate.Open(local.Open("", "")).Endpoint(key); !errors.Is(err, fs.ErrNotExist) {
		add(chained.PolicyType, "")
	}
	return out, nil
}

func (c chain) gc(ctx context.Context, args *skel.CmdArgs) error {
	ctx, _ = plugin.GCStart(ctx) // one start for all members
	return c.each(ctx, "GC", args, true)
}

// each calls every member on its own. After an error it continues only if on is set.
func (c chain) each(ctx context.Context, verb string, args *skel.CmdArgs, on bool) error {
	l, err := c.load(args)
	if err != nil {
		return err
	}
	env := environment(verb, args).AsEnv()
	var errs []error
	for i, m := range l.requests(verb) {
		req, err := m.Request(nil)
		if err == nil {
			_, err = c.exec.ExecPlugin(ctx, m.Path, req, env)
		}
		if err != nil {
			errs = append(errs, l.of(i, err))
		}
		if err != nil && !on {
			break
		}
	}
	return errors.Join(errs...)
}

// load reads the chain and finds every member, so that none runs if one is missing.
func (c chain) load(args *skel.CmdArgs) (*loaded, error) {
	l, err := read(args.StdinData)
	if err != nil {
		return nil, err
	}
	return l, l.locate(args.Path)
}

// locate finds the programs of all members.
func (l *loaded) locate(path string) (err error) {
	for i := range l.members {
		m := &l.members[i]
		if m.path, err = invoke.FindInPath(m.Type, filepath.SplitList(path)); err != nil {
			return l.of(i, err)
		}
	}
	return nil
}

// of adds the member to an error, and keeps its code and details.
func (l *loaded) of(i int, err error) error {
	e := *cni.AsError(err)
	e.Msg = fmt.Sprintf("plugins[%d] %s: %s", i, l.members[i].Type, e.Msg)
	if req, err := l.request(&l.members[i], nil); err == nil {
		if line, column, ok := cni.Relocate(e.Details, req, l.data, fmt.Sprintf("plugins[%d]", i)); ok {
			e.Details = cni.PositionDetails(line, column)
		}
	}
	return &e
}
