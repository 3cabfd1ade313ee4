package podnet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cni"
)

// Attach connects an existing pod to one more network. Without Network.IfName it uses the first free name of net1, net2
// and so on. It cannot move the default route to the new network. After an error it leaves nothing behind.
func (m *Manager) Attach(ctx context.Context, id string, network Network) (a *Attachment, err error) {
	ctx, end := m.begin(ctx, podStep("attach", &Pod{ID: id}))
	defer func() { end(err) }()
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	n, unlock, err := m.take(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	q, err := m.planMore(ctx, n, network)
	if err != nil {
		return nil, err
	}
	q.Pending = true
	n.Parts = append(n.Parts, q.noted)
	if err := m.notes.write(n); err != nil {
		return nil, err
	}
	err = m.add(ctx, &n.Pod, q)
	if err == nil {
		n.Parts[len(n.Parts)-1].Pending = false
		err = m.notes.write(n)
	}
	if err != nil {
		return nil, m.undo(ctx, n, []*part{q}, err)
	}
	got := m.attachment(id, &q.noted)
	return &got, nil
}

// planMore is plan for one more network of a pod.
func (m *Manager) planMore(ctx context.Context, n *note, network Network) (*part, error) {
	if !n.whole() {
		return nil, fmt.Errorf("pod %s: its setup or teardown was interrupted: tear it down", n.ID)
	}
	if sameNetns(n.Netns, n.namespace()) == "" {
		return nil, errNetnsGone(n)
	}
	if network.DefaultRoute != nil {
		return nil, fmt.Errorf("pod %s: the default route cannot be moved to another network while the pod runs", n.ID)
	}
	taken := func(name string) bool {
		return name == "lo" || slices.ContainsFunc(n.Parts, func(p noted) bool { return p.IfName == name })
	}
	for i := 1; network.IfName == ""; i++ {
		if name := (&Network{}).InterfaceName(i); !taken(name) {
			network.IfName = name
		}
	}
	if taken(network.IfName) {
		return nil, fmt.Errorf("pod %s has an interface %s: choose another name", n.ID, network.IfName)
	}
	with := n.Pod
	with.Networks = []Network{network}
	parts, err := m.plan(ctx, &with)
	if err != nil {
		return nil, err
	}
	parts[0].Default = false
	return parts[0], nil
}

// Detach disconnects a pod from the network of one interface. It returns os.ErrNotExist if the pod has no such
// interface.
func (m *Manager) Detach(ctx context.Context, id, ifName string) (err error) {
	ctx, end := m.begin(ctx, podStep("detach", &Pod{ID: id}))
	defer func() { end(err) }()
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	n, unlock, err := m.take(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	i := slices.IndexFunc(n.Parts, func(p noted) bool { return p.IfName == ifName && !p.isLoopback() })
	if i < 0 {
		return missing("pod %s has no interface %s", id, ifName)
	}
	return m.takeDown(ctx, n, []*part{m.recall(ctx, n.Parts[i], id, sameNetns(n.Netns, n.namespace()))})
}

// GC removes all objects of pods, except the valid pods, given by ID. First it tears down invalid pods that have a
// note. Then each network of the configuration removes everything that no valid pod owns. GC skips pods that are being
// set up, or that were set up after it began. It continues after an error and returns all errors.
func (m *Manager) GC(ctx context.Context, valid []string) error {
	return m.GCWith(ctx, func() ([]string, error) { return valid, nil })
}

// GCWith is GC for a caller that finds out itself which pods are valid. GC calls the function once it has begun, so that it
// also skips a pod that is set up while the function looks.
func (m *Manager) GCWith(ctx context.Context, findValid func() ([]string, error)) (err error) {
	ctx, end := m.begin(ctx, Step{Operation: "gc"})
	defer func() { end(err) }()
	c, failed := m.beginCollection()
	valid, err := findValid()
	if err != nil {
		return err
	}
	for _, id := range valid {
		if err := cni.ValidateContainerID(id); err != nil {
			return err
		}
		c.valid[id] = true
	}
	return errors.Join(failed, c.tearDownInvalid(ctx), c.collectNetworks(ctx))
}
