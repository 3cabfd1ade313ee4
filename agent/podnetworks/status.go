package podnetworks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/podnet"
)

const (
	publishEvery = time.Second
	patchWithin  = 10 * time.Second
	// maxConflicts is the number of attempts after a conflict, which any other change of the pod causes, too.
	maxConflicts = 3
	// settled is the age from which the time of the directory's last change identifies its content.
	settled = 2 * time.Second

	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// publication is the state of one pod's annotation.
type publication struct {
	done      bool
	failures  int
	conflicts int       // among the failures
	next      time.Time // of the next attempt
}

// publish writes the annotation network-status of new pods every second until the context ends. After a restart of the
// agent it patches each pod once more, which changes nothing in the API.
func (m *Manager) publish(ctx context.Context) {
	t := time.NewTicker(publishEvery)
	defer t.Stop()
	for {
		m.logUnreadable(m.publishOnce(ctx, time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// logUnreadable logs why the networks of pods cannot be read, once per message until they can.
func (m *Manager) logUnreadable(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != m.unreadable {
		m.o.Log.Warn("the networks of pods cannot be read", "error", err)
	}
	m.unreadable = text
}

func (m *Manager) publishOnce(ctx context.Context, now time.Time) error {
	stamp, changed := m.o.Dir.Stamp()
	if stamp == m.stamp && stamp != "" {
		return nil
	}
	keys, err := m.o.Dir.Pods()
	if err != nil {
		return err
	}
	m.forget(keys)
	all := true
	for _, k := range keys {
		p := m.published[k]
		if p == nil {
			p = &publication{}
			m.published[k] = p
		}
		if !p.done && !now.Before(p.next) {
			m.try(ctx, k, p, now)
		}
		all = all && p.done
	}
	m.stamp = ""
	if all && now.Sub(changed) > settled {
		m.stamp = stamp
	}
	return nil
}

// forget drops the pods that have no record any more.
func (m *Manager) forget(keys []podstate.Key) {
	have := make(map[podstate.Key]bool, len(keys))
	for _, k := range keys {
		have[k] = true
	}
	for k := range m.published {
		if !have[k] {
			delete(m.published, k)
		}
	}
}

// try publishes the networks of one pod. A pod whose ADD has not finished is not ready for it.
func (m *Manager) try(ctx context.Context, k podstate.Key, p *publication, now time.Time) {
	record, err := m.o.Dir.Pod(k.ContainerID, k.IfName)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !record.Attached {
		return
	}
	if err == nil && (record.Namespace == "" || record.Name == "") {
		p.done = true // it is not a pod of Kubernetes
		return
	}
	if err == nil {
		err = m.patch(ctx, record)
	}
	// A deleted pod needs no annotation. A conflict that stays means that another pod has the name: a later one, or the
	// API's copy of a static pod.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) && p.conflicts >= maxConflicts {
		p.done = true
		return
	}
	if apierrors.IsConflict(err) {
		p.conflicts++
	}
	if p.failures == 0 {
		m.o.Log.Warn("the annotation network-status cannot be written; the agent tries again", "namespace", record.Namespace, "pod", record.Name, "error", err)
	}
	p.next = now.Add(min(time.Second<<min(p.failures, 6), time.Minute))
	p.failures++
}

// patch writes the annotation of a pod. The UID makes the API refuse the patch for a later pod with the same name.
func (m *Manager) patch(ctx context.Context, record *podstate.Pod) error {
	text, err := statusOf(record)
	if err != nil {
		return err
	}
	metadata := map[string]any{"annotations": map[string]string{podnet.AnnotationStatus: text}}
	if record.UID != "" {
		metadata["uid"] = record.UID
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patchWithin)
	defer cancel()
	return m.o.Client.Patch(types.MergePatchType).AbsPath("/api/v1/namespaces", record.Namespace, "pods", record.Name).
		SetHeader("Accept", metadataOnly).Body(body).Do(ctx).Error()
}

// statusOf returns the annotation's value.
func statusOf(record *podstate.Pod) (string, error) {
	s := &podnet.PodStatus{ID: record.ContainerID}
	for _, a := range record.Attachments {
		version, _ := rawjson.Find(a.Config, "cniVersion")
		text, err := rawjson.Unquote(version.Raw)
		if err != nil {
			return "", fmt.Errorf("network %s: cniVersion: %w", a.Name, err)
		}
		result, err := wire.Decode(text, a.Result)
		if err != nil {
			return "", fmt.Errorf("network %s: %w", a.Name, err)
		}
		s.Attachments = append(s.Attachments, podnet.Attachment{
			Network: a.Name, Namespace: a.Namespace, IfName: a.IfName, Default: a.Default, DeviceID: a.DeviceID, Result: result,
			Isolated: delegate.IsolatedNetwork(a.Config),
		})
	}
	return s.StatusAnnotation()
}
