package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// SetUpPod connects a pod to its networks, to all of them or to none. After an error it rolls back what was attached.
// The error includes what could not be rolled back, which is left to TearDownPod. No plugin runs before all requests,
// networks and plugins of the pod were checked.
//
// The first network and lo are set up first. The others follow at once, up to Options.Parallel. Then come, in the pod's
// order, the networks that bring a default route, of which the last one wins. Networks with "linkInContainer" come
// last, because they use another network's link.
//
// SetUpPod can be repeated. If the pod is already set up as requested, it returns the status and changes nothing. If
// the pod is set up in another way, it returns ErrExists. If an earlier set-up was interrupted, or its namespace is
// gone, SetUpPod removes it first.
func (m *Manager) SetUpPod(ctx context.Context, pod Pod) (status *PodStatus, err error) {
	ctx, end := m.begin(ctx, podStep("setup", &pod))
	defer func() { end(err) }()
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	if err := cni.ValidateContainerID(pod.ID); err != nil {
		return nil, err
	}
	unlock, err := m.notes.lock(ctx, pod.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	id := netns.IDAt(pod.Netns)
	n := &note{Pod: pod, NetnsID: id.File, NetnsCookie: id.StoredCookie(), Created: time.Now()}
	if status, err := m.again(ctx, n); status != nil || err != nil {
		return status, err
	}
	parts, err := m.plan(ctx, &pod)
	if err != nil {
		return nil, err
	}
	if n.NetnsID == "" {
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "pod %s: %w", pod.ID, missing("there is no network namespace %s", pod.Netns))
	}
	for _, q := range parts { // the clean-up after a failure would remove it
		if kernel.HasLink(pod.Netns, q.IfName) {
			return nil, fmt.Errorf("pod %s: the namespace %s has an interface %s already: remove it, or name another one for network %s", pod.ID, pod.Netns, q.IfName, q.Network)
		}
	}
	if parts, err = m.withLoopback(&pod, parts); err != nil {
		return nil, err
	}
	return m.setUp(ctx, n, parts)
}

// again checks the pod's note and returns the pod's status if it is set up as requested.
func (m *Manager) again(ctx context.Context, n *note) (*PodStatus, error) {
	old, err := m.notes.read(n.ID)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && old.whole() && sameNetns(old.Netns, old.namespace()) != "" {
		if old.namespace().Same(n.namespace()) && same(&old.Pod, &n.Pod) && old.attached() {
			return m.statusOf(old, &attach.Namespaces{}), nil
		}
		return nil, fmt.Errorf("pod %s: %w, in namespace %s, with other settings: tear it down first", n.ID, ErrExists, old.Netns)
	}
	if err := m.tearDown(ctx, n.ID); err != nil {
		return nil, fmt.Errorf("pod %s: undo the interrupted operation: %w", n.ID, err)
	}
	return nil, nil
}

func same(a, b *Pod) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(x) == string(y)
}

// setUp carries out the plan. It writes the note before and after.
func (m *Manager) setUp(ctx context.Context, n *note, parts []*part) (*PodStatus, error) {
	for _, q := range parts {
		q.Pending = true
		n.Parts = append(n.Parts, q.noted)
	}
	if err := m.notes.write(n); err != nil {
		return nil, err
	}
	err := m.addAll(ctx, &n.Pod, parts)
	if err == nil {
		for i := range n.Parts {
			n.Parts[i].Pending = false
		}
		err = m.notes.write(n)
	}
	if err != nil {
		return nil, m.undo(ctx, n, parts, err)
	}
	return m.statusOf(n, &attach.Namespaces{}), nil
}

// undo rolls back a failed set-up.
func (m *Manager) undo(ctx context.Context, n *note, parts []*part, cause error) error {
	over, cancel := context.WithCancel(ctx) // already cancelled, so that only the clean-up time is left
	cancel()
	if err := m.takeDown(over, n, parts); err != nil {
		return fmt.Errorf("%w; and undoing it failed, too: tear the pod down: %w", cause, err)
	}
	return cause
}

var errOther = errors.New("another network of the pod failed")

// addAll sets up the parts in stages. After the first failure it starts no more and cancels those that are running.
func (m *Manager) addAll(ctx context.Context, pod *Pod, parts []*part) error {
	var first, together, ordered, alone []*part
	for _, q := range parts {
		switch {
		case q.Default || q.isLoopback():
			first = append(first, q)
		case q.alone:
			alone = append(alone, q)
		case q.ordered:
			ordered = append(ordered, q)
		default:
			together = append(together, q)
		}
	}
	stages := [][]*part{first, together}
	for _, q := range append(ordered, alone...) {
		stages = append(stages, []*part{q})
	}
	for _, stage := range stages {
		if err := m.addTogether(ctx, pod, stage); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) addTogether(ctx context.Context, pod *Pod, parts []*part) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, len(parts))
	m.each(len(parts), func(i int) {
		if ctx.Err() == nil {
			errs[i] = m.add(ctx, pod, parts[i])
		} else {
			errs[i] = context.Cause(ctx)
		}
		if errors.Is(errs[i], errOther) {
			errs[i] = nil // report the failure that caused the cancellation instead
		} else if errs[i] != nil {
			cancel(errOther)
		}
	})
	return errors.Join(errs...)
}

// each calls do for 0 to n-1, up to Options.Parallel at once.
func (m *Manager) each(n int, do func(i int)) {
	if m.options.Parallel == 1 || n == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, m.options.Parallel)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	group.Wait()
}

// add sets up one network of a pod.
func (m *Manager) add(ctx context.Context, pod *Pod, q *part) (err error) {
	ctx, end := m.begin(ctx, networkStep("ADD", pod, &q.noted))
	defer func() { end(err) }()
	res, err := m.cni.AddNetworkList(ctx, q.list, q.rt)
	if err != nil {
		return err
	}
	return m.verify(q, res)
}
