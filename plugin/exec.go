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

// Exec runs this program's plugins in process and all others as child processes. It plans the plugins of a list
// together; see session.
type Exec struct {
	invoke.RawExec
	Plugins []skel.Plugin // run in process if their type resolves to this program or to one with the same plugins
	Env     Env
}

var _ invoke.ListExec = (*Exec)(nil)

// InProcess returns the plugin of this program that a file on CNI_PATH resolves to.
func (x *Exec) InProcess(path string) (skel.Plugin, bool) {
	name := filepath.Base(path)
	i := slices.IndexFunc(x.Plugins, func(p skel.Plugin) bool { return p.Name == name })
	if i < 0 || !x.Env.HasFile(path) {
		return skel.Plugin{}, false
	}
	return x.Plugins[i], true
}

// ExecPlugin runs one plugin and returns what it prints.
func (x *Exec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	p, ok := x.InProcess(path)
	if !ok {
		return x.RawExec.ExecPlugin(ctx, path, stdin, environ)
	}
	env := getenvOf(environ)
	if listed := env(invoke.ListedVariable); listed != "" {
		ctx, _ = withGCStart(ctx, listed)
	}
	return skel.Serve(ctx, p, env, stdin)
}

// getenvOf returns a getenv for environ. As in a process, the last value of a name counts.
func getenvOf(environ []string) func(string) string {
	return func(name string) string {
		for _, kv := range slices.Backward(environ) {
			if key, value, ok := strings.Cut(kv, "="); ok && key == name {
				return value
			}
		}
		return ""
	}
}

// ExecList runs ADD, CHECK or DEL for a list; DEL runs from the end of the list.
func (x *Exec) ExecList(ctx context.Context, members []invoke.Member, args *invoke.Args) (out []byte, failed int, err error) {
	s := newSession(ctx, x.Env.Root)
	defer s.close()
	l := list{Exec: x, session: s, args: args, environ: args.AsEnv()}
	l.env = getenvOf(l.environ)
	shared := context.WithValue(ctx, sessionKey{}, s)
	for i := range members {
		if args.Command == "DEL" {
			i = len(members) - 1 - i
		}
		s.member = i
		if err = context.Cause(ctx); err == nil {
			out, err = l.run(shared, members[i], out)
		}
		if err != nil {
			return nil, l.failedMember(i), l.afterFailure(ctx, err)
		}
	}
	if args.Command == "ADD" {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = l.finish(ctx)
	}
	if err != nil {
		return nil, l.failedMember(len(members) - 1), l.afterFailure(ctx, err)
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
	served  bool // a plugin has already checked the namespace
}

// variable returns an environment variable for an in-process plugin. It spares the second and later plugins the check
// of the namespace. DEL accepts any namespace and needs no check, and a staged attachment is in the host's.
func (l *list) variable(name string) string {
	if name == "CNI_NETNS_OVERRIDE" && (l.served || l.staged) && l.args.Command != "DEL" {
		return "1"
	}
	return l.env(name)
}

// run runs one member with prev, the result of the member before it.
func (l *list) run(ctx context.Context, m invoke.Member, prev []byte) ([]byte, error) {
	req, err := m.Request(prev)
	if err != nil {
		return nil, err
	}
	if p, ok := l.InProcess(m.Path); ok {
		out, err := skel.Serve(ctx, p, l.variable, req)
		l.served = l.served || err == nil && !p.AnyNetns
		return bytes.TrimSpace(out), err
	}
	if err := l.finish(ctx); err != nil { // the process may read what the plugins before it created
		return nil, err
	}
	out, err := l.RawExec.ExecPlugin(ctx, m.Path, req, l.environ)
	if err != nil || l.args.Command != "ADD" {
		return nil, err
	}
	return inVersion(req, m.Path, out)
}

// inVersion converts a process's result to the configuration's version.
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

// finish applies what the in-process plugins deferred to the end.
func (l *list) finish(ctx context.Context) error {
	var err error
	switch l.args.Command {
	case "ADD":
		err = contain("the list", l.commit)
	case "DEL":
		err = l.removeNoted(ctx)
	}
	if err != nil {
		e := cni.AsError(err)
		return &cni.Error{Code: e.Code, Msg: e.Msg, Details: e.Details} // without a cause, as an error from a process
	}
	return nil
}

// failedMember returns the position of the member that failed. It differs from the member that ran if the failed part
// was deferred.
func (l *list) failedMember(ran int) int {
	if l.failed >= 0 {
		return l.failed
	}
	return ran
}

// afterFailure undoes an ADD that was not committed. For a DEL, it removes what the plugins before the failed one noted,
// as they would have done in processes of their own.
func (l *list) afterFailure(ctx context.Context, err error) error {
	var more error
	switch l.args.Command {
	case "ADD":
		more = l.undo(ctx)
	case "DEL":
		more = l.finish(ctx)
	}
	if more == nil {
		return err
	}
	e := *cni.AsError(err)
	e.Msg += "\n" + more.Error()
	return &e
}
