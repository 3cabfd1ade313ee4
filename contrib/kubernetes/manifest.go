// Package kubernetes renders the objects that make Fairlead the pod network of a cluster. The Helm chart in ./chart has
// their templates. They use only what Helm and this package both have: Values, Release.Namespace, Chart.AppVersion and
// the functions toYaml, nindent and sha256sum.
package kubernetes

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/internal/yamlerr"
)

//go:embed chart/values.yaml chart/Chart.yaml chart/templates
var chart embed.FS

// Values are the chart's values: see chart/values.yaml.
type Values map[string]any

// Options say what to render.
type Options struct {
	Values    Values // those that differ from the defaults
	Namespace string // of the agents
	Version   string // tag of the image; "": the chart's appVersion
}

// templates are the files in the order in which their objects are created: definitions before what uses them.
var templates = []string{"crds.yaml", "definitions.yaml", "policy.yaml", "agent.yaml"}

// Render returns the objects as YAML documents, with the namespace first.
func Render(o Options) ([]byte, error) {
	values, err := Defaults()
	if err != nil {
		return nil, err
	}
	values.Merge(o.Values)
	values.prune()
	if err := values.complete(); err != nil {
		return nil, err
	}
	app, err := appVersion()
	if err != nil {
		return nil, err
	}
	if o.Version != "" {
		app = o.Version
	}
	if err := values.check(); err != nil {
		return nil, err
	}
	data := map[string]any{
		"Values":  map[string]any(values),
		"Release": map[string]string{"Namespace": o.Namespace},
		"Chart":   map[string]string{"AppVersion": app},
	}
	name, err := yaml.Marshal(o.Namespace) // with quotes if YAML would read it as a number
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, namespace, bytes.TrimSpace(name))
	for _, file := range templates {
		t, err := template.New(file).Funcs(functions).Option("missingkey=error").ParseFS(chart, "chart/templates/"+file)
		if err != nil {
			return nil, err
		}
		var objects bytes.Buffer
		if err := t.Execute(&objects, data); err != nil {
			return nil, err
		}
		if text := bytes.TrimSpace(objects.Bytes()); len(text) > 0 { // a value may switch off the whole file
			fmt.Fprintf(&out, "---\n%s\n", text)
		}
	}
	return out.Bytes(), nil
}

// namespace allows host networking and host paths, which the agents need.
const namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: %s
  labels:
    app.kubernetes.io/name: fairlead
    pod-security.kubernetes.io/enforce: privileged
`

var functions = template.FuncMap{
	"toYaml": func(v any) (string, error) {
		raw, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(raw), "\n"), err
	},
	"nindent": func(n int, text string) string {
		pad := "\n" + strings.Repeat(" ", n)
		return pad + strings.ReplaceAll(text, "\n", pad)
	},
	"sha256sum": func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	},
}

// Defaults returns the chart's default values.
func Defaults() (v Values, err error) {
	raw, err := chart.ReadFile("chart/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(raw, &v)
	}
	return v, err
}

func appVersion() (string, error) {
	var c struct{ AppVersion string }
	raw, err := chart.ReadFile("chart/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(raw, &c)
	}
	return c.AppVersion, err
}

// Parse reads a file of values. The error names the line, and lists the keys that exist.
func Parse(file string, raw []byte) (v Values, err error) {
	var s shape
	if err := config.Parse(file, raw, &s); err != nil {
		return nil, err
	}
	return v, yaml.Unmarshal(raw, &v)
}

// shape has the keys of the values, and their types.
type shape struct {
	Image struct {
		Repository string `json:"repository"`
		Tag        string `json:"tag"`
		Digest     string `json:"digest"`
		PullPolicy string `json:"pullPolicy"`
	} `json:"image"`
	Network *cluster.Network `json:"network"`
	CNI     struct {
		Directory string          `json:"directory"`
		Binaries  string          `json:"binaries"`
		Fuse      bool            `json:"fuse"`
		File      string          `json:"file"`
		List      json.RawMessage `json:"list"`
	} `json:"cni"`
	PodNetworks struct {
		Enabled     bool   `json:"enabled"`
		Definitions bool   `json:"definitions"`
		Kubelet     string `json:"kubelet"`
	} `json:"podNetworks"`
	Policy struct {
		Enabled bool `json:"enabled"`
	} `json:"policy"`
	Flannel struct {
		Enabled bool   `json:"enabled"`
		Prefix  string `json:"prefix"`
	} `json:"flannel"`
	IsolatedNetworks bool `json:"isolatedNetworks"`
	Agent            struct {
		LogLevel  string          `json:"logLevel"`
		Grace     config.Duration `json:"grace"`
		Port      int             `json:"port"`
		Resources json.RawMessage `json:"resources"`
	} `json:"agent"`
	MaxUnavailable json.RawMessage   `json:"maxUnavailable"`
	NodeSelector   json.RawMessage   `json:"nodeSelector"`
	Tolerations    []json.RawMessage `json:"tolerations"`
}

// check reports wrong values.
func (v Values) check() error {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	var s shape
	if err := config.Parse("values", raw, &s); err != nil {
		return err
	}
	if s.Network == nil {
		return errors.New("network is absent")
	}
	s.Network.Name = cluster.DefaultNetwork
	return errors.Join(s.limits(), s.Network.Check())
}

// Merge puts other values over v, as Helm does. It merges maps. Anything else replaces the old value, and null removes it
// in the end.
func (v Values) Merge(other Values) {
	for name, value := range other {
		old, ok1 := v[name].(map[string]any)
		value, ok2 := value.(map[string]any)
		if ok1 && ok2 {
			Values(old).Merge(value)
		} else {
			v[name] = other[name]
		}
	}
}

// prune removes nulls.
func (v Values) prune() {
	for name, value := range v {
		if value == nil {
			delete(v, name)
		} else if inner, ok := value.(map[string]any); ok {
			Values(inner).prune()
		}
	}
}

// complete returns an error if a value is absent that a template needs.
func (v Values) complete() error {
	all, err := Defaults()
	if err != nil {
		return err
	}
	return errors.Join(missing("", all, v)...)
}

// missing returns errors for keys that values lack or have as null. Below some keys, users choose the keys.
func missing(path string, all, values map[string]any) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		key := path + name
		if values[name] == nil {
			errs = append(errs, fmt.Errorf("%s is absent: want a value, as in the chart's values.yaml", key))
			continue
		}
		inner, ok1 := all[name].(map[string]any)
		value, ok2 := values[name].(map[string]any)
		if ok1 && ok2 && !slices.Contains([]string{"network", "cni.list", "agent.resources", "nodeSelector"}, key) {
			errs = append(errs, missing(key+".", inner, value)...)
		}
	}
	return errs
}

// Set returns the values of text such as "network.nat=false". The part after "=" is YAML.
func Set(text string) (Values, error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return nil, fmt.Errorf("%q: want KEY=VALUE, such as network.nat=false", text)
	}
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
		return nil, &setError{text, yamlerr.Explain("", []byte(value), err)}
	}
	if value == "" {
		v = ""
	}
	out, err := setValue(text, key, v)
	if err == nil {
		return out, nil
	}
	switch v.(type) {
	case float64, bool: // a key that wants text gets what the user typed: the tag 1.10 is no number
		if out, err := setValue(text, key, value); err == nil {
			return out, nil
		}
	}
	return nil, err
}

// setValue returns the values with one key. It verifies the type.
func setValue(text, key string, v any) (Values, error) {
	names := strings.Split(key, ".")
	for _, name := range slices.Backward(names) {
		v = map[string]any{name: v}
	}
	raw, err := yaml.Marshal(v)
	if err != nil {
		return nil, err
	}
	out, err := Parse("", raw)
	if err != nil {
		err = &setError{text, err}
	}
	return out, err
}

// setError names the text of --set. It omits the positions in the YAML that setValue made of the text.
type setError struct {
	text string
	err  error
}

func (e *setError) Error() string {
	return e.text + ": " + position.ReplaceAllString(e.err.Error(), "")
}

func (e *setError) Unwrap() error { return e.err }

var position = regexp.MustCompile(`(?m)^\d+:\d+: `)

// DefaultNamespace is the namespace in the published manifest.
const DefaultNamespace = config.DefaultNamespace

// Manifest returns Render's objects with an introduction.
func Manifest(o Options) ([]byte, error) {
	raw, err := Render(o)
	return append([]byte(introduction), raw...), err
}

const introduction = `# Fairlead as the pod network of a Kubernetes cluster. Its only store is the Kubernetes API.
#
#   kubectl apply -f fairlead.yaml
#
# Nodes become Ready as their agents do. Before that, compare the subnet in the ConfigMap with the cluster's pod network:
# kubeadm's --pod-network-cidr. "fairlead kubernetes install" finds it, and takes other values. This file is the result of
# "fairlead kubernetes manifest". The documentation is docs/kubernetes.md.
`
