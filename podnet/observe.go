package podnet

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

// Step is a part of the work. An operation on a pod contains operations on networks, which contain runs of plugins.
type Step struct {
	// Operation on a pod is "setup", "teardown", "check", "attach" or "detach", and on the node "gc" or "status". On a
	// network or a plugin it is the CNI verb: ADD, CHECK, DEL, GC or STATUS.
	Operation string
	// PodID, PodNamespace and PodName identify the pod. They are "" if the step is not about a pod. The last two are
	// also "" if only the ID is known.
	PodID, PodNamespace, PodName string
	Network, IfName              string // "" for an operation on the whole pod
	Plugin                       string // plugin type; "" if the step does not run a plugin
}

// Observer observes every step. The packages podnet/metrics and podnet/tracing have implementations. It must be safe
// for concurrent use.
type Observer interface {
	// Begin returns the context for the step, and a function that is called with the step's error at its end.
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

// observed returns an Exec that reports each plugin as a step.
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

// ExecPlugin reports the run of one plugin as a step.
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

// watchedListExec observes plugins of a list that run in one process. Each member asks for its request when its turn
// comes, which begins its step. Work that is deferred to the end of the list counts for the last member.
type watchedListExec struct {
	watchedExec
	list invoke.ListExec
}

// ExecList reports each member as a step.
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
