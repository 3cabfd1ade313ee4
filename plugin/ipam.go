package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/skel"
)

// IPAM is an address plugin that can run inside the plugin that delegates to it.
type IPAM struct {
	skel.Plugin
	NeedsLinks bool // it sends packets over the container's interface

	// Validate rejects a configuration that Add would reject. It may be nil.
	Validate func(data []byte) error
	// Plan returns what Add would return, without allocating. It is nil if the plugin cannot predict that. A
	// *CannotPlanError says why it cannot at this moment.
	Plan func(context.Context, *skel.CmdArgs) (*cni.Result, error)
}

// CannotPlanError says why an address plugin cannot predict its result.
type CannotPlanError struct{ Why error }

func (e *CannotPlanError) Error() string { return e.Why.Error() }

// Unwrap returns the reason.
func (e *CannotPlanError) Unwrap() error { return e.Why }

// reuseKey is the context key for ReusesAddresses.
type reuseKey struct{}

// ReusesAddresses reports whether an attachment gets the addresses that it already holds: it existed before, and its
// namespace was deleted.
func ReusesAddresses(ctx context.Context) bool { return ctx.Value(reuseKey{}) != nil }

// ipam is the plugin that a configuration delegates addresses to. It runs in this process if it resolves to this
// program, otherwise as a child process.
type ipam struct {
	name  string // "": none, layer 2 only
	args  *skel.CmdArgs
	local *IPAM // nil: a child process
	added bool  // it allocated addresses in this operation
	reuse bool  // it may return addresses that the attachment already holds
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

// Has reports whether a plugin resolves to this program or to one with the same plugins. It compares files, never
// names.
func (e Env) Has(name, path string) bool {
	file, err := invoke.FindInPath(name, filepath.SplitList(path))
	return err == nil && e.HasFile(file)
}

// HasFile reports whether a file is this program or one with the same plugins.
func (e Env) HasFile(file string) bool {
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	own, err := ownProgram()
	return err == nil && (os.SameFile(own, info) || own.Size() == info.Size() && isCopy(file)) || e.SameBuild != nil && e.SameBuild(file, info)
}

// isCopy reports whether a file of the same size is a copy of this program: "fairlead install" makes some. Then the first
// pages are the same, which have the offsets of all parts and the build ID.
func isCopy(file string) bool {
	own, err1 := firstPage("/proc/self/exe")
	other, err2 := firstPage(file)
	return err1 == nil && err2 == nil && bytes.Equal(own, other)
}

func firstPage(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	page := make([]byte, 4096)
	_, err = io.ReadFull(f, page)
	return page, err
}

// ownProgram describes the file of this program. It stays the same while the program runs.
var ownProgram = sync.OnceValues(func() (fs.FileInfo, error) { return os.Stat("/proc/self/exe") })

// afterLinks reports whether the plugin may need the links to exist: an external plugin, or dhcp.
func (i *ipam) afterLinks() bool {
	return i.name != "" && (i.local == nil || i.local.NeedsLinks)
}

// delegate returns a Delegator that runs the plugin as a process with this operation's arguments.
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
		if i.reuse {
			ctx = context.WithValue(ctx, reuseKey{}, true)
		}
		res, err = i.local.Funcs.Add(ctx, i.args)
	}
	// A process may have allocated an address before it failed (specification, section 4), but not one that did not start.
	i.added = err == nil || i.local == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
	return res, err
}

func (i *ipam) check(ctx context.Context) error {
	return i.run(ctx, func(f skel.CNIFuncs) operation { return f.Check }, invoke.Delegator.Check)
}

func (i *ipam) del(ctx context.Context) error {
	return i.run(ctx, func(f skel.CNIFuncs) operation { return f.Del }, invoke.Delegator.Del)
}

// keep adds valid attachments to the plugin's GC request.
func (i *ipam) keep(valid []cni.Attachment) error {
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

// operation is a plugin operation without a result.
type operation = func(context.Context, *skel.CmdArgs) error

// run runs an operation without a result, in process or as a process.
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
