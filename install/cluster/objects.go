package cluster

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Object is an object of any type.
type Object = unstructured.Unstructured

// resource says where the API has the objects of a kind.
type resource struct {
	kind, group, version, plural string
	namespaced                   bool
}

const (
	definitions = "customresourcedefinitions"
	daemonSets  = "daemonsets"
	pods        = "pods"
	configMaps  = "configmaps"
)

func resources() []resource {
	return []resource{
		{"Namespace", "", "v1", "namespaces", false},
		{"CustomResourceDefinition", "apiextensions.k8s.io", "v1", definitions, false},
		{"ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", false},
		{"ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", false},
		{"ServiceAccount", "", "v1", "serviceaccounts", true},
		{"ClusterRole", "rbac.authorization.k8s.io", "v1", "clusterroles", false},
		{"ClusterRoleBinding", "rbac.authorization.k8s.io", "v1", "clusterrolebindings", false},
		{"Role", "rbac.authorization.k8s.io", "v1", "roles", true},
		{"RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings", true},
		{"ConfigMap", "", "v1", configMaps, true},
		{"DaemonSet", "apps", "v1", daemonSets, true},
		{"Lease", "coordination.k8s.io", "v1", "leases", true},
		{"Pod", "", "v1", pods, true},
		{"Node", "", "v1", "nodes", false},
	}
}

// resourceOf returns the resource of an object's kind.
func resourceOf(kind string) (resource, error) {
	for _, r := range resources() {
		if r.kind == kind {
			return r, nil
		}
	}
	return resource{}, fmt.Errorf("the manifest has a %s, which this program cannot apply", kind)
}

// path returns the path of a resource. An empty namespace means all namespaces.
func (r resource) path(namespace string) string {
	p := "/api/" + r.version
	if r.group != "" {
		p = "/apis/" + r.group + "/" + r.version
	}
	if r.namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.plural
}

// pathOf returns the path of the objects of a kind that is in the table.
func pathOf(kind, namespace string) string {
	r, err := resourceOf(kind)
	if err != nil {
		panic(err)
	}
	return r.path(namespace)
}

// objectPath returns the path of an object.
func objectPath(o *Object) (string, error) {
	r, err := resourceOf(o.GetKind())
	if err != nil {
		return "", err
	}
	return r.path(o.GetNamespace()) + "/" + o.GetName(), nil
}

// Parse reads the documents of a manifest.
func Parse(manifest []byte) (all []*Object, err error) {
	for doc := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
		o := &Object{}
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			return nil, fmt.Errorf("the manifest: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if _, err := objectPath(o); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// title returns an object's kind and name, as errors and the output of commands have them.
func title(o *Object) string { return o.GetKind() + " " + o.GetName() }
