package podnetworks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
)

// The API of NetworkAttachmentDefinitions.
const (
	apiPath            = "/apis/k8s.cni.cncf.io/v1"
	resource           = "network-attachment-definitions"
	resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"
)

// object is a NetworkAttachmentDefinition, as far as the plugin needs it.
type object struct {
	Metadata struct {
		Namespace       string            `json:"namespace"`
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// definition returns the object's content. Another component may have created the type, with a schema that allows any
// spec. It is then the problem of the pods that select the network.
func (o *object) definition() podstate.Definition {
	var spec struct{ Config json.RawMessage }
	var config string
	_ = json.Unmarshal(o.Spec, &spec) // a spec that is not an object has no config
	if len(spec.Config) > 0 && json.Unmarshal(spec.Config, &config) != nil {
		config = string(spec.Config)
	}
	d := podstate.Definition{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Config: config, Resource: o.Metadata.Annotations[resourceAnnotation],
	}
	if len(config) > maxConfig {
		d.Config, d.Problem = "", fmt.Sprintf("spec.config has %d bytes, and the limit is %d", len(config), maxConfig)
	}
	return d
}

const (
	// maxConfig is the largest spec.config in bytes. Otherwise, whoever may create definitions in one namespace could fill
	// the disks of all nodes.
	maxConfig = 64 << 10
	// pageSize is the number of definitions that one request lists. Each may have more than 1 MiB.
	pageSize = 20
	// watchSeconds is the longest time of a watch. A list follows each watch. It repairs the files after a restored backup
	// of the API, and after changes by others.
	watchSeconds = 600
	// withoutType is the pause while the API does not have the type.
	withoutType = 30 * time.Second
)

// follow keeps the files of the definitions up to date until the context ends.
func (m *Manager) follow(ctx context.Context) {
	typeKnown := true
	for failures := 0; ctx.Err() == nil; {
		revision, err := m.list(ctx)
		began := time.Now()
		if err == nil {
			err = m.watch(ctx, revision)
		}
		switch {
		case ctx.Err() != nil:
		case isEnd(err):
			failures, typeKnown = 0, true
			if time.Since(began) < kube.ShortWatch {
				pause(ctx, 1)
			}
		case apierrors.IsNotFound(err): // the files stay: an API server that starts may not have the type yet
			if typeKnown {
				m.o.Log.Warn("the Kubernetes API does not know NetworkAttachmentDefinitions: create their CustomResourceDefinition, see docs/networks-kubernetes.md")
			}
			typeKnown = false
			select {
			case <-ctx.Done():
			case <-time.After(withoutType):
			}
		default:
			m.o.Log.Warn("the files of NetworkAttachmentDefinitions may be out of date", "error", err)
			if time.Since(began) > longestPause { // the watch worked
				failures = 0
			}
			pause(ctx, failures)
			failures++
		}
	}
}

// list writes all definitions, removes the files of others, and returns the revision of the list.
func (m *Manager) list(ctx context.Context) (revision string, err error) {
	listed := map[podstate.DefinitionArgs]bool{}
	var errs []error
	for next := ""; ; {
		raw, err := kube.Body(m.o.Client.Get().AbsPath(apiPath, resource).Param("limit", strconv.Itoa(pageSize)).Param("continue", next).Do(ctx))
		if err != nil {
			return "", err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []object        `json:"items"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return "", fmt.Errorf("read a list of NetworkAttachmentDefinitions: %w", err)
		}
		if err := kube.CheckList(page.Metadata); err != nil {
			return "", err
		}
		for i := range page.Items {
			d := page.Items[i].definition()
			listed[podstate.DefinitionArgs{Namespace: d.Namespace, Name: d.Name}] = true
			errs = append(errs, m.o.Dir.WriteDefinition(d)) // the others do not wait for it
		}
		if next = page.Metadata.Continue; next == "" {
			return page.Metadata.ResourceVersion, errors.Join(append(errs, m.removeOthers(listed))...)
		}
	}
}

func (m *Manager) removeOthers(listed map[podstate.DefinitionArgs]bool) error {
	have, err := m.o.Dir.Definitions()
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range have {
		if !listed[d] {
			errs = append(errs, m.o.Dir.RemoveDefinition(d.Namespace, d.Name))
		}
	}
	return errors.Join(errs...)
}

// errWatchEnded means that the API server ended a watch, or that a proxy cut it after a while.
var errWatchEnded = errors.New("the watch ended")

// watch writes the changes after a revision until the watch ends.
func (m *Manager) watch(ctx context.Context, after string) error {
	body, err := m.o.Client.Get().AbsPath(apiPath, resource).Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(watchSeconds/2+rand.N(watchSeconds/2))).Param("resourceVersion", after).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	began := time.Now()
	for lines := json.NewDecoder(body); ; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := lines.Decode(&e); err != nil && (errors.Is(err, io.EOF) || time.Since(began) >= kube.ShortWatch) {
			return errWatchEnded
		} else if err != nil {
			return fmt.Errorf("watch NetworkAttachmentDefinitions: %w", err)
		}
		if err := m.changed(e.Type, e.Object); err != nil {
			return err
		}
	}
}

// changed handles an event of a watch.
func (m *Manager) changed(event string, raw json.RawMessage) error {
	if event == "ERROR" {
		var status metav1.Status
		_ = json.Unmarshal(raw, &status)
		return &apierrors.StatusError{ErrStatus: status}
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("read a NetworkAttachmentDefinition: %w", err)
	}
	switch event {
	case "ADDED", "MODIFIED":
		return m.o.Dir.WriteDefinition(o.definition())
	case "DELETED":
		return m.o.Dir.RemoveDefinition(o.Metadata.Namespace, o.Metadata.Name)
	}
	return nil // a bookmark
}
