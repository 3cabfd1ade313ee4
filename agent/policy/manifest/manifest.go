// Package manifest reads a world of policies from Kubernetes' objects in YAML or JSON, as "kubectl get -o yaml" prints
// them and "kubectl apply" reads them, and policies in a short form.
package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	strict "sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/internal/yamlerr"
)

// Load reads files. "-" is standard input. Objects of other kinds than policies, pods, namespaces and nodes are skipped,
// and counted by their kind.
func Load(stdin io.Reader, files ...string) (w *policy.World, skipped Skipped, err error) {
	l := newLoader()
	for _, file := range files {
		var raw []byte
		if file == "-" {
			raw, err = io.ReadAll(stdin)
		} else {
			raw, err = os.ReadFile(file)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the policies: %w", err)
		}
		if err := l.documents(raw); err != nil {
			return nil, nil, &InvalidError{fmt.Errorf("%s: %w", file, err)}
		}
	}
	l.nameNamespaces()
	return l.w, l.skipped, nil
}

// InvalidError reports a file whose content is not valid.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }

// Unwrap returns the problem.
func (e *InvalidError) Unwrap() error { return e.err }

// Parse reads the objects of a text, as Load does. It adds no namespaces for pods.
func Parse(text []byte) (w *policy.World, skipped Skipped, err error) {
	l := newLoader()
	err = l.documents(text)
	return l.w, l.skipped, err
}

// Skipped is the number of skipped objects of each kind.
type Skipped map[string]int

// String returns, for example, "2 ConfigMap, 1 Service".
func (s Skipped) String() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(s)) {
		list = append(list, fmt.Sprintf("%d %s", s[kind], cmp.Or(kind, "without a kind")))
	}
	return strings.Join(list, ", ")
}

type loader struct {
	w       *policy.World
	skipped Skipped
	seen    map[string]bool // policies
}

func newLoader() *loader {
	return &loader{w: &policy.World{Namespaces: map[string]map[string]string{}}, skipped: Skipped{}, seen: map[string]bool{}}
}

func (l *loader) documents(raw []byte) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for n := 1; ; n++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && len(bytes.TrimSpace(text)) > 0 {
			err = l.document(text)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// document reads a document of YAML, or all objects of a JSON stream.
func (l *loader) document(text []byte) error {
	stream, isJSON := jsonStream(text)
	if !isJSON {
		if err := single(text); err != nil {
			return err
		}
		return l.object(text)
	}
	for i, o := range stream {
		if err := l.object(o); err != nil {
			if len(stream) > 1 {
				err = fmt.Errorf("object %d: %w", i+1, err)
			}
			return err
		}
	}
	return nil
}

// jsonStream returns the values of a text that is JSON: one, or several one after the other.
func jsonStream(text []byte) (values [][]byte, isJSON bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return nil, false
	}
	for d := stdjson.NewDecoder(bytes.NewReader(text)); ; {
		var v stdjson.RawMessage
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return values, true
		case err != nil:
			return nil, false
		}
		values = append(values, v)
	}
}

// single returns an error if a text has a second YAML document, which the parsers of objects ignore.
func single(text []byte) error {
	d := goyaml.NewDecoder(bytes.NewReader(text))
	var v any
	if d.Decode(&v) != nil {
		return nil // the parser of the object reports it
	}
	if err := d.Decode(&v); !errors.Is(err, io.EOF) {
		return errors.New(`another object follows the first one: put a line "---" between them`)
	}
	return nil
}

// object reads one object, or each object of a list.
func (l *loader) object(text []byte) error {
	if isShort(text) {
		p, err := parseShort(text)
		if err != nil {
			return err
		}
		return l.add("NetworkPolicy", p)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []any  `json:"items"`
	}
	if err := strict.Unmarshal(text, &head); err != nil {
		return explain(text, err)
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
		if want := versions()[head.Kind]; want != "" && isVersionOf(head.APIVersion, want) {
			return fmt.Errorf("%s: the apiVersion is %q: want %s", head.Kind, head.APIVersion, want)
		}
		if head.Items == nil && head.Kind != "List" && !isNothing(text) {
			l.skipped[head.Kind]++
		}
		return nil
	}
	if err := decode(text, o, versions()[head.Kind] != ""); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(head.Kind+" "+o.GetName()), err)
	}
	switch head.Kind {
	case "Pod", "NetworkPolicy":
		o.SetNamespace(cmp.Or(o.GetNamespace(), corev1.NamespaceDefault))
	}
	return l.add(head.Kind, o)
}

// isNothing reports whether a document has only comments.
func isNothing(text []byte) bool {
	var v any
	return strict.Unmarshal(text, &v) == nil && v == nil
}

// add adds an object. A policy that occurs twice is an error: only one of them could apply.
func (l *loader) add(kind string, o metav1.Object) error {
	if id := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"); versions()[kind] != "" {
		if l.seen[kind+" "+id] {
			return fmt.Errorf("%s %s occurs twice", kind, id)
		}
		l.seen[kind+" "+id] = true
	}
	l.w.Add(o)
	return nil
}

// versions returns the API versions of the policies that apply.
func versions() map[string]string {
	return map[string]string{"NetworkPolicy": networkingv1.SchemeGroupVersion.String(), "ClusterNetworkPolicy": v1alpha2.GroupVersion.String()}
}

// isVersionOf reports whether a version is one of the same API group. Policies of other products have a group of their own.
func isVersionOf(version, of string) bool {
	group, _, _ := strings.Cut(version, "/")
	want, _, _ := strings.Cut(of, "/")
	return group == want || version == "" || group == "extensions"
}

// explain translates errors of the YAML parser, and errors about a value's type, for users. It returns other errors unchanged.
func explain(text []byte, err error) error {
	if err == nil {
		return nil
	}
	if _, words, is := strings.Cut(err.Error(), "yaml: "); is {
		return yamlerr.Explain("", text, errors.New(words))
	}
	m := wrongType.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	want := yamlerr.Wanted(m[3])
	if m[3] == "string" && (m[1] == "number" || m[1] == "bool") {
		want += ": put the value in quotes"
	}
	return errors.New(strings.TrimPrefix(m[2]+": ", ": ") + "want " + want)
}

// wrongType matches the error of encoding/json, and of packages derived from it, about a value of the wrong type.
var wrongType = regexp.MustCompile(`json: cannot unmarshal (\w+).* into Go (?:struct field \w*\.(\S+)|value) of type (.+)$`)

// decode decodes an object. In a policy, an unknown key is an error, and so is one with other capitals, as for the API
// server. A pod, a namespace or a node of a newer Kubernetes may have keys that policy does not need.
func decode(text []byte, into any, known bool) error {
	raw, err := strict.YAMLToJSONStrict(text)
	if err != nil {
		return explain(text, err)
	}
	unknown, err := json.UnmarshalStrict(raw, into)
	err = explain(text, err)
	if !known {
		return err
	}
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
