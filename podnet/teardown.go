package podnet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cni"
)

// TearDownPod disconnects a pod from all its networks. It needs only the ID. It finds the attachments in the pod's
// note, in libcni's cache and in the records of Fairlead's plugins, with the configurations that they were set up with.
// The network files and the namespace may be gone.
//
// It continues after an error and returns all errors. Failed attachments stay in the note for the next call. For an
// unknown pod it runs DEL on the default network and returns nil.
//
// Each network has its own time, so one that hangs does not affect the others. If the context ends, each still gets
// Options.CleanUpTime.
func (m *Manager) TearDownPod(ctx context.Context, id string) (err error) {
	ctx, end := m.begin(ctx, podStep("teardown", &Pod{ID: id}))
	defer func() { end(err) }()
	if err := cni.ValidateContainerID(id); err != nil {
		return err
	}
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	unlock, err := m.notes.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return m.tearDown(ctx, id)
}

// tearDown is TearDownPod for a caller that holds the pod's lock.
func (m *Manager) tearDown(ctx context.Context, id string) error {
	n, parts, err := m.known(ctx, id)
	if n == nil {
		n = &note{Pod: Pod{ID: id}}
	}
	return errors.Join(err, m.takeDown(ctx, n, parts))
}

// takeDown detaches parts of a pod, and removes its note after the last. It first detaches, in reverse order, the parts
// that use other networks' links, and then the others at once.
func (m *Manager) takeDown(ctx context.Context, n *note, parts []*part) error {
	if err := m.notePending(n, parts); err != nil {
		m.options.Warn("cannot update the state of a pod; its teardown continues", err)
	}
	var alone, together []int
	for i, q := range slices.Backward(parts) {
		if q.alone && !q.Default {
			alone = append(alone, i)
		} else {
			together = append(together, i)
		}
	}
	errs := make([]error, len(parts))
	for _, i := range alone {
		errs[i] = m.del(ctx, &n.Pod, parts[i])
	}
	m.each(len(together), func(k int) { errs[together[k]] = m.del(ctx, &n.Pod, parts[together[k]]) })
	return errors.Join(errors.Join(errs...), m.noteLeft(n, parts, errs))
}

// notePending marks the parts in the pod's note, if there is one, as being removed.
func (m *Manager) notePending(n *note, parts []*part) error {
	if len(n.Parts) == 0 || !n.whole() {
		return nil
	}
	for i := range n.Parts {
		if has(parts, n.Parts[i].Network, n.Parts[i].IfName) {
			n.Parts[i].Pending = true
		}
	}
	return m.notes.write(n)
}

// noteLeft removes the detached parts from the note, and removes the note after the last.
func (m *Manager) noteLeft(n *note, parts []*part, errs []error) error {
	n.Parts = slices.DeleteFunc(n.Parts, func(p noted) bool {
		i := slices.IndexFunc(parts, func(q *part) bool { return q.Network == p.Network && q.IfName == p.IfName })
		return i >= 0 && errs[i] == nil
	})
	if len(n.Parts) == 0 {
		return m.notes.remove(n.ID)
	}
	return m.notes.write(n)
}

// del detaches one network of a pod.
func (m *Manager) del(ctx context.Context, pod *Pod, q *part) (err error) {
	ctx, cancel := m.lasting(ctx)
	defer cancel()
	ctx, end := m.begin(ctx, networkStep("DEL", pod, &q.noted))
	defer func() { end(err) }()
	switch {
	case q.list != nil:
		return m.cni.DelNetworkList(ctx, q.list.ForDel(), q.rt)
	case m.options.RemoveLeftover != nil:
		return m.options.RemoveLeftover(ctx, Leftover{q.rt.ContainerID, q.Network, q.IfName, q.rt.NetNS})
	}
	return fmt.Errorf("detach %s of pod %s from network %s: the configuration that the network was added with is lost, and the network has no other: restore the configuration, or type: fairlead gc --all", q.IfName, pod.ID, q.Network)
}
