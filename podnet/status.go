package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// NodeStatus reports whether pods can be set up.
type NodeStatus struct {
	Ready   bool   `json:"ready"`
	Default string `json:"defaultNetwork,omitempty"`
	// Err is why pods cannot be set up. Either there is no network, or the plugins' STATUS returned a *cni.Error with
	// its code (50 not available, 51 limited).
	Err      error               `json:"-"`
	Networks []ConfiguredNetwork `json:"networks"` // usable networks, the default first
	Problems []Problem           `json:"problems"` // in the configuration, whether or not pods can be set up
}

// ConfiguredNetwork is a network in the configuration.
type ConfiguredNetwork struct {
	Name string `json:"name"`
	File string `json:"file"`
	// Kept reports that the file is currently unreadable and its last good content is in use.
	Kept bool `json:"kept"`
}

// Status checks whether the default network can serve a set-up. Its plugins must be installed. From specification 1.1.0
// on, Status runs STATUS of each plugin. A caller can run it every few seconds.
func (m *Manager) Status(ctx context.Context) (s NodeStatus) {
	ctx, end := m.begin(ctx, Step{Operation: "status"})
	defer func() { end(s.Err) }()
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	s = m.Networks()
	list, err := m.conf.find("")
	if err == nil {
		err = m.findPlugins(list)
	}
	if err == nil {
		ctx, end := m.begin(ctx, Step{Operation: "STATUS", Network: list.Name})
		err = m.cni.GetStatusNetworkList(ctx, list)
		end(err)
	}
	s.Ready, s.Err = err == nil, err
	return s
}

// Networks is Status without running plugins: Ready is false.
func (m *Manager) Networks() NodeStatus {
	s := NodeStatus{Networks: []ConfiguredNetwork{}, Problems: []Problem{}} // so that JSON has no null
	for _, f := range m.conf.networks() {
		s.Networks = append(s.Networks, ConfiguredNetwork{f.list.Name, f.path, f.err != nil})
	}
	if list, err := m.conf.find(""); err == nil {
		s.Default = list.Name
	}
	s.Problems = append(s.Problems, m.conf.all()...)
	return s
}

// CheckPod runs CHECK on every network of a pod and returns all errors. It skips a network before specification 0.4.0,
// which has no CHECK. It returns os.ErrNotExist for a pod that is not set up.
func (m *Manager) CheckPod(ctx context.Context, id string) (err error) {
	ctx, end := m.begin(ctx, podStep("check", &Pod{ID: id}))
	defer func() { end(err) }()
	ctx, cancel := m.bounded(ctx)
	defer cancel()
	n, unlock, err := m.take(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if !n.whole() {
		return fmt.Errorf("pod %s: its setup or teardown was interrupted: tear it down", id)
	}
	if sameNetns(n.Netns, n.namespace()) == "" {
		return errNetnsGone(n)
	}
	var errs []error
	for _, p := range n.Parts {
		errs = append(errs, m.check(ctx, &n.Pod, m.recall(ctx, p, id, n.Netns)))
	}
	return errors.Join(errs...)
}

func errNetnsGone(n *note) error {
	return fmt.Errorf("pod %s: its network namespace %s is gone, or the path leads to another namespace", n.ID, n.Netns)
}

func (m *Manager) check(ctx context.Context, pod *Pod, q *part) (err error) {
	if q.list == nil {
		return fmt.Errorf("network %s of pod %s has no configuration", q.Network, pod.ID)
	}
	if !cni.AtLeast(q.list.CNIVersion, "0.4.0") {
		return nil
	}
	ctx, end := m.begin(ctx, networkStep("CHECK", pod, &q.noted))
	defer func() { end(err) }()
	return m.cni.CheckNetworkList(ctx, q.list, q.rt)
}

// take locks a pod that has a note. It returns os.ErrNotExist if there is no note.
func (m *Manager) take(ctx context.Context, id string) (*note, func(), error) {
	if err := cni.ValidateContainerID(id); err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(m.notes.file(id)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, missing("pod %s is not set up", id)
	}
	unlock, err := m.notes.lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	n, err := m.notes.read(id)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return n, unlock, nil
}

// PodStatus returns the status of a pod from its set-up. It returns os.ErrNotExist for a pod that is not set up.
func (m *Manager) PodStatus(id string) (*PodStatus, error) {
	return m.podStatus(id, &attach.Namespaces{})
}

func (m *Manager) podStatus(id string, all *attach.Namespaces) (*PodStatus, error) {
	if err := cni.ValidateContainerID(id); err != nil {
		return nil, err
	}
	n, err := m.notes.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("pod %s is not set up", id)
	}
	if err != nil {
		return nil, err
	}
	s := m.statusOf(n, all)
	if !n.whole() {
		s.State = m.unfinished(id)
	}
	return s, nil
}

// List returns all pods that were set up, ordered by ID. The error contains the pods with an unreadable note, and the
// others are still returned.
func (m *Manager) List() (out []*PodStatus, err error) {
	ids, err := m.notes.ids()
	errs := []error{err}
	var all attach.Namespaces
	for _, id := range ids {
		s, err := m.podStatus(id, &all)
		if err == nil {
			out = append(out, s)
		} else if !errors.Is(err, fs.ErrNotExist) { // torn down in the meantime
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// unfinished returns the state of a pod with a running or an interrupted operation.
func (m *Manager) unfinished(id string) string {
	unlock, free, err := m.notes.tryLock(id)
	if err != nil || !free {
		return StateBusy
	}
	unlock()
	return StateInterrupted
}

func (m *Manager) statusOf(n *note, all *attach.Namespaces) *PodStatus {
	s := &PodStatus{ID: n.ID, Namespace: n.Namespace, Name: n.Name, UID: n.UID, Netns: n.Netns, State: StateReady, Attachments: []Attachment{}}
	for i := range n.Parts {
		if !n.Parts[i].isLoopback() {
			s.Attachments = append(s.Attachments, m.attachment(n.ID, &n.Parts[i]))
		}
	}
	if n.Netns != "" && sameNetns(n.Netns, n.namespace()) == "" {
		if path, err := all.At(n.namespace()); err == nil && path == "" {
			s.State = StateGone
		}
	}
	return s
}

func (m *Manager) attachment(id string, p *noted) Attachment {
	a := Attachment{Network: p.Network, Namespace: p.Namespace, IfName: p.IfName, Default: p.Default, DeviceID: p.DeviceID}
	if list, err := (&libcni.NetworkAttachment{Network: p.Network, Config: p.Config}).List(); err == nil {
		a.Result, _ = m.cni.GetNetworkListCachedResult(list, p.runtimeConf(id, "")) // a missing result stays nil
	}
	return a
}
