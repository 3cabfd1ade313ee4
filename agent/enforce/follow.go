package enforce

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
)

// object is an object of the API of one type.
type object interface {
	runtime.Object
	metav1.Object
}

// kind says how to follow the objects of one type.
type kind struct {
	resource string
	example  object
	group    schema.GroupVersion
	isPolicy bool // objects of other types matter once there is a policy
	optional bool // its type may not exist in the cluster

	// read returns the change of the compiler's world by a new or changed object, or nil if the object is ignored. The
	// compiler forgets a changed object that is ignored. The change may run several times.
	read   func(object) func(*policy.Compiler)
	forget func(c *policy.Compiler, namespace, name string)
}

// fromAPI is part of what an ADD waits for.
const fromAPI = " of the Kubernetes API"

// clusterPolicyVersion is the version of ClusterNetworkPolicy. It is a constant; nothing assigns it.
var clusterPolicyVersion = schema.GroupVersion{Group: v1alpha2.GroupName, Version: "v1alpha2"}

// kinds are the types that policy depends on. ClusterNetworkPolicies need a CustomResourceDefinition.
func kinds() []kind {
	return []kind{
		{
			resource: "namespaces", example: &corev1.Namespace{}, group: corev1.SchemeGroupVersion,
			read: func(o object) func(*policy.Compiler) {
				return func(c *policy.Compiler) { c.SetNamespace(o.GetName(), o.GetLabels()) }
			},
			forget: func(c *policy.Compiler, _, name string) { c.DeleteNamespace(name) },
		},
		{
			resource: "nodes", example: &corev1.Node{}, group: corev1.SchemeGroupVersion,
			read: func(o object) func(*policy.Compiler) {
				n := policy.FromNode(o.(*corev1.Node))
				return func(c *policy.Compiler) { c.SetNode(n) }
			},
			forget: func(c *policy.Compiler, _, name string) { c.DeleteNode(name) },
		},
		{
			resource: "pods", example: &corev1.Pod{}, group: corev1.SchemeGroupVersion,
			read: func(o object) func(*policy.Compiler) {
				e := policy.FromPod(o.(*corev1.Pod))
				if e == nil {
					return nil
				}
				return func(c *policy.Compiler) { c.SetEndpoint(e) }
			},
			forget: func(c *policy.Compiler, namespace, name string) { c.DeleteEndpoint(namespace, name) },
		},
		{
			resource: "networkpolicies", example: &networkingv1.NetworkPolicy{}, group: networkingv1.SchemeGroupVersion, isPolicy: true,
			read: func(o object) func(*policy.Compiler) {
				return func(c *policy.Compiler) { c.SetNetworkPolicy(o.(*networkingv1.NetworkPolicy)) }
			},
			forget: func(c *policy.Compiler, namespace, name string) {
				c.DeletePolicy(policy.NetworkPolicyID(namespace, name))
			},
		},
		{
			resource: "clusternetworkpolicies", example: &v1alpha2.ClusterNetworkPolicy{}, group: clusterPolicyVersion, isPolicy: true, optional: true,
			read: func(o object) func(*policy.Compiler) {
				return func(c *policy.Compiler) { c.SetClusterPolicy(o.(*v1alpha2.ClusterNetworkPolicy)) }
			},
			forget: func(c *policy.Compiler, _, name string) { c.DeletePolicy(policy.ClusterPolicyID(name)) },
		},
	}
}

// client returns a client for the objects of a group, which are encoded by protobuf if the API has them so.
func client(config *rest.Config, group schema.GroupVersion) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, v1alpha2.Install} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &group
	if group.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if group.Group != v1alpha2.GroupName {
		c.AcceptContentTypes, c.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	}
	out, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API: %w", err)
	}
	return out, nil
}

// follower delivers the objects of a kind to an Enforcer. It is a cache.ReflectorStore that keeps only names.
type follower struct {
	kind
	e     *Enforcer
	mu    sync.Mutex
	names map[string]bool // namespace/name
	gone  time.Time       // since when the API does not have the type, although it had objects; zero: it has

	otherVersions func(context.Context) []string // in which the API has the type
}

// versionsOf returns the versions in which the API has objects of a resource.
func versionsOf(ctx context.Context, c *rest.RESTClient, group, resource string) (out []string) {
	var g metav1.APIGroup
	if err := get(ctx, c, "/apis/"+group, &g); err != nil {
		return nil
	}
	for _, v := range g.Versions {
		var list metav1.APIResourceList
		var objects metav1.PartialObjectMetadataList
		is := func(r metav1.APIResource) bool { return r.Name == resource }
		if get(ctx, c, "/apis/"+v.GroupVersion, &list) != nil || !slices.ContainsFunc(list.APIResources, is) {
			continue
		}
		if err := get(ctx, c, "/apis/"+v.GroupVersion+"/"+resource+"?limit=1", &objects); err != nil || len(objects.Items) > 0 {
			out = append(out, v.Version)
		}
	}
	return out
}

func get(ctx context.Context, c *rest.RESTClient, path string, into any) error {
	raw, err := c.Get().RequestURI(path).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// run follows the kind's objects until the context ends.
func (f *follower) run(ctx context.Context, config *rest.Config) error {
	c, err := client(config, f.group)
	if err != nil {
		return err
	}
	logger := logr.FromSlogHandler(f.e.o.Log.Handler())
	lw := cache.NewListWatchFromClient(c, f.resource, metav1.NamespaceAll, fields.Everything())
	if f.optional {
		f.otherVersions = func(ctx context.Context) []string { return versionsOf(ctx, c, f.group.Group, f.resource) }
		lw.ListWithContextFunc, lw.WatchFuncWithContext = f.listIfKnown(lw.ListWithContextFunc), f.watchIfKnown(lw.WatchFuncWithContext)
	}
	f.noteRefusals(lw)
	lw.WatchFuncWithContext = limitWatches(lw.WatchFuncWithContext)
	ctx = klog.NewContext(ctx, logger)
	cache.NewReflectorWithOptions(lw, f.example, f, cache.ReflectorOptions{Name: f.resource, Logger: &logger}).RunWithContext(ctx)
	return nil
}

// listIfKnown treats a type that the API does not have as one without objects. If there were some before, it waits first:
// an API server that starts may not have the type yet.
func (f *follower) listIfKnown(list cache.ListWithContextFunc) cache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		f.mu.Lock()
		defer f.mu.Unlock()
		if !apierrors.IsNotFound(err) {
			f.gone = time.Time{}
			return out, err
		}
		if f.gone.IsZero() {
			f.gone = time.Now()
		}
		if others := f.otherVersions(ctx); len(others) > 0 { // the objects exist
			err = fmt.Errorf("the API has %s only in %s, and network policy reads %s: %w", f.resource, strings.Join(others, ", "), f.group.Version, err)
			f.e.o.Log.Error("cannot read policies", "error", err)
			return out, err
		}
		if len(f.names) == 0 || time.Since(f.gone) >= withoutType {
			return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}, nil
		}
		return out, err
	}
}

// withoutType is the pause, and up to twice as long, after which the follower asks again for a type that the API does not
// have.
const withoutType = time.Minute

// watchIfKnown waits while the API does not have the type. Then the follower lists again. The first watch is not delayed:
// it stands for a list.
func (f *follower) watchIfKnown(start cache.WatchFuncWithContext) cache.WatchFuncWithContext {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := start(ctx, o)
		if !apierrors.IsNotFound(err) || o.SendInitialEvents != nil {
			return w, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(withoutType + rand.N(withoutType)):
			return watch.NewEmptyWatch(), nil
		}
	}
}

// Watches of one type that begin per second, and at once. The reflector begins a watch that the API ended as too old again
// without a pause.
const (
	watchesPerSecond = 1
	watchesAtOnce    = 5
)

// limitWatches delays watches that begin too often.
func limitWatches(start cache.WatchFuncWithContext) cache.WatchFuncWithContext {
	limit := flowcontrol.NewTokenBucketRateLimiter(watchesPerSecond, watchesAtOnce)
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if err := limit.Wait(ctx); err != nil {
			return nil, err
		}
		return start(ctx, o)
	}
}

// Add implements cache.ReflectorStore.
func (f *follower) Add(v any) error { return f.change(v, false) }

// Update implements cache.ReflectorStore.
func (f *follower) Update(v any) error { return f.change(v, false) }

// Delete implements cache.ReflectorStore.
func (f *follower) Delete(v any) error { return f.change(v, true) }

// Resync implements cache.ReflectorStore.
func (f *follower) Resync() error { return nil }

// Transformer implements cache.TransformingStore. It drops what is large and not needed, so that a list of all pods needs
// less memory.
func (f *follower) Transformer() cache.TransformFunc {
	return func(v any) (any, error) {
		if o, ok := v.(object); ok {
			o.SetManagedFields(nil)
		}
		if p, ok := v.(*corev1.Pod); ok {
			p.Spec.Volumes, p.Status.Conditions, p.Status.ContainerStatuses = nil, nil, nil
		}
		return v, nil
	}
}

func (f *follower) change(v any, deleted bool) error {
	o, ok := v.(object)
	if !ok {
		return fmt.Errorf("%s: unexpected type %T", f.resource, v)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.e.update(f.changeBy(o, deleted))
	return nil
}

// changeBy returns the change of the compiler's world by one object. It reads the object, which may take a while, before the
// Enforcer is locked.
func (f *follower) changeBy(o object, deleted bool) func(*policy.Compiler) {
	f.e.statuses.see(o, deleted)
	name := o.GetNamespace() + "/" + o.GetName()
	if !deleted {
		if set := f.read(o); set != nil {
			f.names[name] = true
			return set
		}
	}
	delete(f.names, name)
	return func(c *policy.Compiler) { f.forget(c, o.GetNamespace(), o.GetName()) }
}

// Replace implements cache.ReflectorStore. The list has all objects.
func (f *follower) Replace(list []any, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := f.names
	f.names = make(map[string]bool, len(list))
	var changes []func(*policy.Compiler)
	for _, v := range list {
		if o, ok := v.(object); ok {
			changes = append(changes, f.changeBy(o, false))
		}
	}
	for name := range gone {
		if !f.names[name] {
			namespace, name, _ := strings.Cut(name, "/")
			changes = append(changes, func(c *policy.Compiler) { f.forget(c, namespace, name) })
			f.e.statuses.forget(f.resource, name)
		}
	}
	f.e.update(func(c *policy.Compiler) {
		for _, change := range changes {
			change(c)
		}
	})
	f.e.synced(f.resource + fromAPI)
	return nil
}
