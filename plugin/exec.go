package plugin

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/skel"
)

// Exec runs plugins of this program inside it, and all others as processes. Those
// of a list it plans together, see session.
type Exec struct {
	invoke.RawExec
	Plugins []skel.Plugin // that run here, where their type resolves to this program or to one that is ours
	Env     Env
}

var _ invoke.ListExec = (*Exec)(nil)

// Here is the plugin of this program that a file on CNI_PATH is.
func (x *Exec) Here(path string) (skel.Plugin, bool) {
	name := filepath.Base(path)
	i := slices.IndexFunc(x.Plugins, func(p skel.Plugin) bool { return p.Name == name })
	if i < 0 || !x.Env.HasFile(path) {
		return skel.Plugin{}, false
	}
	return x.Plugins[i], true
}

// ExecPlugin runs one plugin.
func (x *Exec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	p, ok := x.Here(path)
	if !ok {
		return x.RawExec.ExecPlugin(ctx, path, stdin, environ)
	}
	env := lookUp(environ)
	if listed := env(invoke.ListedVariable); listed != "" {
		ctx, _ = withBegan(ctx, listed)
	}
	return skel.Serve(ctx, p, env, stdin)
}

// lookUp finds variables as a process does: the last of a name counts.
func lookUp(environ []string) func(string) string {
	return func(name string) string {
		for _, kv := range slices.Backward(environ) {
			if key, value, ok := strings.Cut(kv, "="); ok && key == name {
				return value
			}
		}
		return ""
	}
}

// ExecList does ADD, CHECK or DEL for a list, DEL from its end.
func (x *Exec) ExecList(ctx context.Context, members []invoke.Member, args *invoke.Args) (out []byte, failed int, err error) {
	s := newSession(x.Env.Root)
	defer s.close()
	l := list{Exec: x, session: s, args: args, environ: args.AsEnv()}
	l.env = lookUp(l.environ)
	within := context.WithValue(ctx, sessionKey{}, s)
	for i := range members {
		if args.Command == "DEL" {
			i = len(members) - 1 - i
		}
		s.member = i
		if err = context.Cause(ctx); err == nil {
			out, err = l.run(within, members[i], out)
		}
		if err != nil {
			return nil, l.fault(i), l.abandon(ctx, err)
		}
	}
	if args.Command == "ADD" {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = l.settle(ctx)
	}
	if err != nil {
		return nil, l.fault(len(members) - 1), l.abandon(ctx, err)
	}
	return out, -1, nil
}

// list is one operation on a list.
type list struct {
	*Exec
	*session
	args    *invoke.Args
	environ []string
	env     func(string) string
	served  bool // one of the plugins has looked at the namespace and found it good
}

// variable is a variable as the plugins here see it: what one of them has looked
// at is looked at once. DEL is about namespaces that may be anything.
func (l *list) variable(name string) string {
	if name == "CNI_NETNS_OVERRIDE" && l.served && l.args.Command != "DEL" {
		return "1"
	}
	return l.env(name)
}

// run runs one member after one that printed prev.
func (l *list) run(ctx context.Context, m invoke.Member, prev []byte) ([]byte, error) {
	req, err := m.Request(prev)
	if err != nil {
		return nil, err
	}
	if p, ok := l.Here(m.Path); ok {
		out, err := skel.Serve(ctx, p, l.variable, req)
		l.served = l.served || err == nil && !p.AnyNetns
		return bytes.TrimSpace(out), err
	}
	if err := l.settle(ctx); err != nil { // it may look at what those before it made
		return nil, err
	}
	out, err := l.RawExec.ExecPlugin(ctx, m.Path, req, l.environ)
	if err != nil || l.args.Command != "ADD" {
		return nil, err
	}
	return inVersion(req, m.Path, out)
}

// inVersion is what a process printed in the form of the configuration's version.
func inVersion(req []byte, path string, out []byte) ([]byte, error) {
	conf, err := rawjson.ParseObject(req)
	if err != nil {
		return nil, cni.Invalid(req, "", "want an object")
	}
	version := conf.String("cniVersion")
	res, err := invoke.DecodeResult(version, path, out)
	if err != nil {
		return nil, err
	}
	return wire.Encode(res, version)
}

// settle does what the plugins of this program left for the end.
func (l *list) settle(ctx context.Context) error {
	var err error
	switch l.args.Command {
	case "ADD":
		err = l.commit()
	case "DEL":
		err = l.sweep(ctx)
	}
	if err != nil {
		e := cni.AsError(err)
		return &cni.Error{Code: e.Code, Msg: e.Msg, Details: e.Details} // as from a process: without a cause
	}
	return nil
}

// fault is the position of the member that failed: another one than that which
// ran, if its part was done later.
func (l *list) fault(ran int) int {
	if l.failed >= 0 {
		return l.failed
	}
	return ran
}

// abandon takes back what was not yet settled.
func (l *list) abandon(ctx context.Context, err error) error {
	if l.args.Command != "ADD" {
		return err
	}
	undone := l.undo(ctx)
	if undone == nil {
		return err
	}
	e := *cni.AsError(err)
	e.Msg += "\n" + undone.Error()
	return &e
}
