package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/store/kube"
)

// keepAnnotation marks an object of the chart that Helm keeps, with keepValue. Purge deletes those that are only Fairlead's.
const (
	keepAnnotation = "helm.sh/resource-policy"
	keepValue      = "keep"
)

// removeObjects deletes the objects of the manifest, the last ones first. Without Purge, it keeps the definitions with
// their objects, and the namespace, whose Leases belong to them. It always keeps what other components use, too.
func (c *Client) removeObjects(ctx context.Context, objects []*Object, o UninstallOptions, out *Uninstalled) error {
	for _, x := range slices.Backward(objects) {
		what := title(x)
		kept := ""
		switch {
		case x.GetAnnotations()[keepAnnotation] == keepValue && !strings.HasSuffix(x.GetName(), "."+kube.Group):
			kept = "other components use it, too"
		case (x.GetKind() == "CustomResourceDefinition" || x.GetKind() == "Namespace") && !o.Purge:
			kept = "to delete it, type the command with --purge"
		case x.GetKind() == "Namespace":
			var err error
			if kept, err = c.namespaceInUse(ctx, x.GetName()); err != nil {
				return err
			}
		}
		gone, why, err := c.removeObject(ctx, x, kept, o.DryRun)
		if err == nil && !gone && !o.DryRun && x.GetKind() == "Namespace" {
			err = c.releaseNamespace(ctx, x)
		}
		if err != nil {
			return err
		}
		if gone {
			out.Removed = append(out.Removed, what)
		}
		if why != "" {
			out.Kept = append(out.Kept, what+": "+why)
		}
	}
	if o.DryRun || o.Purge && !slices.ContainsFunc(out.Kept, func(k string) bool { return strings.HasPrefix(k, "Namespace ") }) {
		return nil
	}
	return c.removeSessions(ctx, o.Manifest.Namespace)
}

// sessionPrefix begins the names of the Leases of the agents' sessions.
const sessionPrefix = "node."

// removeSessions deletes the Leases of the agents' sessions.
func (c *Client) removeSessions(ctx context.Context, namespace string) error {
	all, err := list[metav1.PartialObjectMetadata](ctx, c, pathOf("Lease", namespace), "")
	for _, l := range all {
		if !strings.HasPrefix(l.Name, sessionPrefix) {
			continue
		}
		if _, err := c.remove(ctx, pathOf("Lease", namespace)+"/"+l.Name); err != nil {
			return err
		}
	}
	return err
}

// removeObject deletes an object that has our label, unless there is a reason to keep it.
func (c *Client) removeObject(ctx context.Context, o *Object, kept string, dry bool) (gone bool, why string, err error) {
	where, err := objectPath(o)
	if err != nil {
		return false, "", err
	}
	var have Object
	err = c.get(ctx, &have.Object, where)
	if errors.Is(err, os.ErrNotExist) {
		return false, "", nil
	}
	if err != nil || kept != "" {
		return false, kept, err
	}
	if want := o.GetLabels()[nameLabel]; have.GetLabels()[nameLabel] != want {
		return false, fmt.Sprintf("it lacks the label %s=%s, so Fairlead did not create it", nameLabel, want), nil
	}
	if dry {
		return true, "", nil
	}
	_, err = c.remove(ctx, where)
	return err == nil, "", err
}

// namespaceInUse returns why the namespace stays, or "".
func (c *Client) namespaceInUse(ctx context.Context, name string) (string, error) {
	if slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease"}, name) {
		return "it belongs to Kubernetes", nil
	}
	all, err := list[corev1.Pod](ctx, c, pathOf("Pod", name), "")
	for _, p := range all {
		if !slices.Contains([]string{agentName, removerName, listenerName, clientName}, p.Labels[nameLabel]) {
			return "it has other pods, such as " + p.Name, err
		}
	}
	if err != nil {
		return "", err
	}
	for _, resource := range []string{"persistentvolumeclaims", "secrets", "services"} { // Fairlead has none
		other, err := c.anyName(ctx, "/api/v1/namespaces/"+name+"/"+resource)
		switch {
		case apierrors.IsForbidden(err):
			return "you may not list its " + resource + ", so it may have some", nil
		case err != nil:
			return "", err
		case other != "":
			return fmt.Sprintf("it has %s, such as %s", resource, other), nil
		}
	}
	return "", nil
}

// releaseNamespace removes the labels that Apply set on a namespace that somebody else created.
func (c *Client) releaseNamespace(ctx context.Context, o *Object) error {
	path, err := objectPath(o)
	if err != nil {
		return err
	}
	var have Object
	err = c.get(ctx, &have.Object, path)
	if errors.Is(err, os.ErrNotExist) || err == nil && have.GetLabels()[nameLabel] != "" {
		return nil
	}
	if err != nil {
		return err
	}
	bare := &Object{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": o.GetName()}}}
	return c.apply(ctx, bare, false, &Change{})
}

// anyName returns the name of an object of a resource, or "". It does not read the content, which may be secret.
func (c *Client) anyName(ctx context.Context, path string) (string, error) {
	raw, err := kube.Body(c.rest.Get().AbsPath(path).Param("limit", "1").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx))
	if err != nil {
		return "", c.Explain("list "+path, err)
	}
	var all metav1.PartialObjectMetadataList
	if err := json.Unmarshal(raw, &all); err != nil || len(all.Items) == 0 {
		return "", err
	}
	return all.Items[0].Name, nil
}
