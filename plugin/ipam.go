package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/skel"
)

// IPAM is an address plugin that can run inside the plugin that delegates to it.
type IPAM struct {
	skel.Plugin
	NeedsLinks bool // it talks over the container's interface

	// Validate refuses a configuration that Add would refuse; nil: unknown.
	Validate func(data []byte) error
	// Plan is what Add would give, without giving it; nil: it cannot tell. An
	// *UnforeseenError says why it cannot now.
	Plan func(context.Context, *skel.CmdArgs) (*cni.Result, error)
}

// UnforeseenError is why an address plugin cannot tell what it would give.
type UnforeseenError struct{ Why error }

func (e *UnforeseenError) Error() string { return e.Why.Error() }

// Unwrap is the reason.
func (e *UnforeseenError) Unwrap() error { return e.Why }

// againKey marks a context: see Again.
type againKey struct{}

// Again tells whether an attachment that already holds addresses is to get
// them again: it stood before, and its namespace went away under it.
func Again(ctx context.Context) bool { return ctx.Value(againKey{}) != nil }

// ipam is the plugin that a configuration delegates addresses to: inside this
// process when it is this very program, else a process of its own.
type ipam struct {
	name  string // "": none, layer 2 only
	args  *skel.CmdArgs
	local *IPAM // nil: a process
	added bool  // it gave addresses in this operation
	again bool  // it may give what the attachment already holds
}

func (r *runner) findIPAM(c *Conf, args *skel.CmdArgs) ipam {
	i := ipam{name: c.IPAM.Type, args: args}
	if i.name == "" {
		return i
	}
	for k := range r.env.IPAM {
		if r.env.IPAM[k].Name == i.name && r.env.Has(i.name, args.Path) {
			i.local = &r.env.IPAM[k]
		}
	}
	return i
}

// Has tells whether a plugin resolves to this program, or to one that is ours:
// by the file, never by the name.
func (e Env) Has(name, path string) bool {
	file, err := invoke.FindInPath(name, filepath.SplitList(path))
	return err == nil && e.HasFile(file)
}

// HasFile tells whether a file is this program, or one that is ours.
func (e Env) HasFile(file string) bool {
	return sameFile(file, "/proc/self/exe") || e.Ours != nil && e.Ours(file)
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// afterLinks: a plugin that is not ours, or dhcp, may need the links to exist.
func (i *ipam) afterLinks() bool {
	return i.name != "" && (i.local == nil || i.local.NeedsLinks)
}

// delegate calls it as a process, with this operation's arguments.
func (i *ipam) delegate() invoke.Delegator {
	return invoke.Delegator{Args: invoke.Args{
		ContainerID: i.args.ContainerID, NetNS: i.args.Netns, IfName: i.args.IfName,
		PluginArgsStr: i.args.Args, Path: i.args.Path,
	}}
}

func (i *ipam) add(ctx context.Context) (res *cni.Result, err error) {
	if i.local == nil {
		res, err = i.delegate().Add(ctx, i.name, i.args.StdinData)
	} else {
		if i.again {
			ctx = context.WithValue(ctx, againKey{}, true)
		}
		res, err = i.local.Funcs.Add(ctx, i.args)
	}
	i.added = err == nil
	return res, err
}

func (i *ipam) check(ctx context.Context) error {
	return i.run(ctx, func(f skel.CNIFuncs) operation { return f.Check }, invoke.Delegator.Check)
}

func (i *ipam) del(ctx context.Context) error {
	return i.run(ctx, func(f skel.CNIFuncs) operation { return f.Del }, invoke.Delegator.Del)
}

// spare has its GC leave these attachments.
func (i *ipam) spare(valid []cni.Attachment) error {
	if i.name == "" {
		return nil
	}
	conf, err := rawjson.ParseObject(i.args.StdinData)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(valid)
	if err != nil {
		return err
	}
	conf.Set("cni.dev/valid-attachments", raw)
	conf.Set("cni.dev/attachments", raw)
	args := *i.args
	args.StdinData = conf.Bytes()
	i.args = &args
	return nil
}

func (i *ipam) gc(ctx context.Context) error {
	return i.run(ctx, func(f skel.CNIFuncs) operation { return f.GC }, invoke.Delegator.GC)
}

func (i *ipam) status(ctx context.Context) error {
	return i.run(ctx, func(f skel.CNIFuncs) operation { return f.Status }, invoke.Delegator.Status)
}

// operation is one of a plugin's that yield nothing.
type operation = func(context.Context, *skel.CmdArgs) error

// run does one of the operations that yield nothing, here or as a process.
func (i *ipam) run(ctx context.Context,
	here func(skel.CNIFuncs) operation,
	there func(invoke.Delegator, context.Context, string, []byte) error,
) (err error) {
	switch {
	case i.name == "":
		return nil
	case i.local == nil:
		err = there(i.delegate(), ctx, i.name, i.args.StdinData)
	case here(i.local.Funcs) != nil:
		err = here(i.local.Funcs)(ctx, i.args)
	}
	if err != nil {
		return fmt.Errorf("ipam %s: %w", i.name, err)
	}
	return nil
}
