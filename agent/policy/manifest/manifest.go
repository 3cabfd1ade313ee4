// Package manifest reads a world of policies from Kubernetes' objects in YAML or JSON, as "kubectl get -o yaml" prints
// them and "kubectl apply" reads them, and policies in a short form.
package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	strict "sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/policy"
)

// Load reads files. "-" is standard input. Objects of other kinds than policies, pods, namespaces and nodes are counted
// and skipped.
func Load(stdin io.Reader, files ...string) (w *policy.World, skipped int, err error) {
	l := &loader{w: &policy.World{Namespaces: map[string]map[string]string{}}}
	for _, file := range files {
		var raw []byte
		if file == "-" {
			raw, err = io.ReadAll(stdin)
		} else {
			raw, err = os.ReadFile(file)
		}
		if err == nil {
			err = l.documents(raw)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", file, err)
		}
	}
	l.nameNamespaces()
	return l.w, l.skipped, nil
}

// Parse reads the objects of a text, as Load does. It adds no namespaces for pods.
func Parse(text []byte) (w *policy.World, skipped int, err error) {
	l := &loader{w: &policy.World{Namespaces: map[string]map[string]string{}}}
	err = l.documents(text)
	return l.w, l.skipped, err
}

type loader struct {
	w       *policy.World
	skipped int
}

func (l *loader) documents(raw []byte) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(bytes.TrimSpace(text)) > 0 {
			err = l.object(text)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// object reads one object, or each object of a list.
func (l *loader) object(text []byte) error {
	if isShort(text) {
		p, err := parseShort(text)
		if err == nil {
			l.w.Add(p)
		}
		return err
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []any  `json:"items"`
	}
	if err := strict.Unmarshal(text, &head); err != nil {
		return err
	}
	for i, item := range head.Items {
		raw, err := strict.Marshal(item)
		if err == nil {
			err = l.object(raw)
		}
		if err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	o := map[string]metav1.Object{
		"v1 Pod": &corev1.Pod{}, "v1 Namespace": &corev1.Namespace{}, "v1 Node": &corev1.Node{},
		"networking.k8s.io/v1 NetworkPolicy":                     &networkingv1.NetworkPolicy{},
		"policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy": &v1alpha2.ClusterNetworkPolicy{},
	}[head.APIVersion+" "+head.Kind]
	if o == nil {
		if head.Items == nil {
			l.skipped++
		}
		return nil
	}
	if err := decode(text, o); err != nil {
		return fmt.Errorf("%s %s: %w", head.Kind, o.GetName(), err)
	}
	switch head.Kind {
	case "Pod", "NetworkPolicy":
		o.SetNamespace(cmp.Or(o.GetNamespace(), corev1.NamespaceDefault))
	}
	l.w.Add(o)
	return nil
}

// decode decodes as the API server does: an unknown key is an error, and so is one with other capitals.
func decode(text []byte, into any) error {
	raw, err := strict.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(raw, into)
	return errors.Join(append(unknown, err)...)
}

// nameNamespaces adds the namespaces of pods that the files do not have.
func (l *loader) nameNamespaces() {
	for _, e := range l.w.Endpoints {
		if _, known := l.w.Namespaces[e.Namespace]; !known {
			n := &corev1.Namespace{}
			n.Name = e.Namespace
			l.w.Add(n)
		}
	}
}
