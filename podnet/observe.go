package podnet

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

// Step is a part of the work: an operation on a pod, within it an operation on a
// network, within that the run of a plugin.
type Step struct {
	// Operation is of a pod "setup", "teardown", "check", "attach", "detach", of the
	// node "gc" and "status"; of a network and a plugin the word of the protocol: ADD,
	// CHECK, DEL, GC, STATUS.
	Operation string
	// PodID, PodNamespace and PodName are the pod's; "" of a step that is about none,
	// the last two also where only the ID is known.
	PodID, PodNamespace, PodName string
	Network, IfName              string // "" of the operation on the whole pod
	Plugin                       string // its type; "" of a step that is no plugin's
}

// Observer is told of every step: packages podnet/metrics and podnet/tracing have
// two. It is called from several goroutines at once.
type Observer interface {
	// Begin returns the context that the step runs under, and what is called at its
	// end, with its error.
	Begin(ctx context.Context, s Step) (context.Context, func(error))
}

type stepKey struct{}

func (m *Manager) begin(ctx context.Context, s Step) (context.Context, func(error)) {
	return beginStep(ctx, m.options.Observers, s)
}

func beginStep(ctx context.Context, observers []Observer, s Step) (context.Context, func(error)) {
	if len(observers) == 0 {
		return ctx, func(error) {}
	}
	ctx = context.WithValue(ctx, stepKey{}, s)
	ends := make([]func(error), len(observers))
	for i, o := range observers {
		ctx, ends[i] = o.Begin(ctx, s)
	}
	return ctx, func(err error) {
		for _, end := range ends {
			end(err)
		}
	}
}

func podStep(operation string, p *Pod) Step {
	return Step{Operation: operation, PodID: p.ID, PodNamespace: p.Namespace, PodName: p.Name}
}

func networkStep(operation string, p *Pod, n *noted) Step {
	s := podStep(operation, p)
	s.Network, s.IfName = n.Network, n.IfName
	return s
}

// observed is an Exec whose plugins are steps.
func observed(exec libcni.Exec, observers []Observer) libcni.Exec {
	if len(observers) == 0 {
		return exec
	}
	one := watchedExec{exec, observers}
	if list, ok := exec.(invoke.ListExec); ok {
		return watchedListExec{one, list}
	}
	return one
}

type watchedExec struct {
	libcni.Exec
	observers []Observer
}

// ExecPlugin is a step of its own.
func (w watchedExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) (out []byte, err error) {
	ctx, end := w.plugin(ctx, path, variable(environ, "CNI_COMMAND"))
	defer func() { end(err) }()
	return w.Exec.ExecPlugin(ctx, path, stdin, environ)
}

func (w watchedExec) plugin(ctx context.Context, path, command string) (context.Context, func(error)) {
	s, _ := ctx.Value(stepKey{}).(Step)
	s.Operation, s.Plugin = command, filepath.Base(path)
	return beginStep(ctx, w.observers, s)
}

func variable(environ []string, name string) (value string) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// watchedListExec sees the plugins of a list that run together by their requests:
// each asks for its own when its turn comes. What they leave to the end of the list
// counts as the last one's.
type watchedListExec struct {
	watchedExec
	list invoke.ListExec
}

// ExecList has a step for each member.
func (w watchedListExec) ExecList(ctx context.Context, members []invoke.Member, args *invoke.Args) (out []byte, failed int, err error) {
	end := func(error) {}
	watched := make([]invoke.Member, len(members))
	for i, member := range members {
		watched[i] = invoke.Member{Path: member.Path, Request: func(prev []byte) ([]byte, error) {
			end(nil)
			_, end = w.plugin(ctx, member.Path, args.Command)
			return member.Request(prev)
		}}
	}
	out, failed, err = w.list.ExecList(ctx, watched, args)
	end(err)
	return out, failed, err
}
