package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/agent/policy/stored"
)

// policyFiles names the directory's files in errors of an ADD that waits for them.
const policyFiles = "policy files"

// directoryEvery is the interval between looks at the directory.
const directoryEvery = time.Second / 2

// unreadableFiles is the stamp of files that cannot be read.
const unreadableFiles = "unreadable"

// directory follows the policies in the files of a directory. Their endpoints are the containers of this host. If a file
// is invalid, all that was in force stays in force.
type directory struct {
	e      *Enforcer
	seen   string        // the stamp at the last look
	stamp  string        // of the files that the compiler has
	failed string        // why they cannot be read
	have   *policy.World // what the compiler has
}

// run follows the directory until the context ends.
func (d *directory) run(ctx context.Context) {
	t := time.NewTicker(directoryEvery)
	defer t.Stop()
	for {
		d.look()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// look reads the files after a change, once two looks see the same files: a file that somebody is writing lacks policies.
// At the start of the agent, one look is enough. After an error it reads them again at the next look: a host may lack memory
// or file descriptors for a moment.
func (d *directory) look() {
	files, stamp, err := policyFilesIn(d.e.o.Directory)
	if err == nil && stamp == d.stamp && d.failed == "" {
		return
	}
	if err != nil {
		stamp = unreadableFiles
	}
	changing := d.seen != "" && d.seen != stamp
	if d.seen = stamp; err == nil && changing {
		return
	}
	var w *policy.World
	var skipped manifest.Skipped
	if err == nil {
		w, skipped, err = manifest.Load(nil, files...)
	}
	if err == nil {
		err = mistyped(skipped)
	}
	if err != nil {
		if d.failed != err.Error() {
			d.e.o.Log.Error("network policy does not change, because the policies cannot be read", "error", err)
		}
		d.failed = err.Error()
		d.e.setUnreadable(d.failed)
		return
	}
	if len(skipped) > 0 {
		d.e.o.Log.Warn("the policy files have objects without an effect", "kinds", skipped.String())
	}
	d.stamp, d.failed = stamp, ""
	d.e.setUnreadable("")
	d.apply(w)
	d.e.synced(policyFiles)
}

// mistyped returns an error if a skipped object was probably meant to be a policy: without it, what it forbids is allowed.
func mistyped(skipped manifest.Skipped) error {
	kinds := []string{"NetworkPolicy", "ClusterNetworkPolicy"}
	for kind := range skipped {
		if kind == "" {
			return errors.New("an object has neither a kind nor a policy: want one of the two")
		}
		if want, ok := config.ClosestKey(kind, kinds); ok && want != kind {
			return fmt.Errorf("an object has the kind %s: want %s", kind, want)
		}
	}
	return nil
}

// policyFilesIn returns the files of a directory, and a text that changes with them.
func policyFilesIn(dir string) (files []string, stamp string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue // the lock of an editor may be a link to nothing
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // of the target of a link
		if err != nil {
			return nil, "", err
		}
		if info.IsDir() {
			continue
		}
		if info.Size() == 0 { // a full disk, or a copy that has just begun
			return nil, "", fmt.Errorf("%s is empty: to remove its policies, delete it", path)
		}
		files = append(files, path)
		at, ok := info.Sys().(*syscall.Stat_t) // a copy may have the size and the time of the file that it replaces
		if !ok {
			return nil, "", fmt.Errorf("%s: no inode", path)
		}
		stamp += fmt.Sprintln(e.Name(), at.Ino, at.Size, at.Ctim)
	}
	return files, "files\n" + stamp, nil
}

// apply replaces the policies and the labels of namespaces. Pods and nodes in the files have no effect.
func (d *directory) apply(w *policy.World) {
	d.e.update(func(c *policy.Compiler) {
		for name, labels := range w.Namespaces {
			c.SetNamespace(name, labels)
		}
		for name := range d.have.Namespaces {
			if _, has := w.Namespaces[name]; !has {
				c.SetNamespace(name, map[string]string{corev1.LabelMetadataName: name})
			}
		}
		gone := map[string]bool{}
		for _, p := range d.have.Policies {
			gone[policy.NetworkPolicyID(p.Namespace, p.Name)] = true
		}
		for _, p := range d.have.ClusterPolicies {
			gone[policy.ClusterPolicyID(p.Name)] = true
		}
		for _, p := range w.Policies {
			c.SetNetworkPolicy(p)
			delete(gone, policy.NetworkPolicyID(p.Namespace, p.Name))
		}
		for _, p := range w.ClusterPolicies {
			c.SetClusterPolicy(p)
			delete(gone, policy.ClusterPolicyID(p.Name))
		}
		for id := range gone {
			c.DeletePolicy(id)
		}
	})
	d.have = w
}

// readHost tells the compiler the addresses of this host if they have changed. With Kubernetes, they are in the API.
func (e *Enforcer) readHost() {
	if e.o.Config != nil {
		return
	}
	n := &policy.Node{Name: e.o.Node, Labels: map[string]string{corev1.LabelHostname: e.o.Node}}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return // the next look may succeed
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			n.Addresses = append(n.Addresses, p.Addr().Unmap().WithZone(""))
		}
	}
	if e.host == nil || !slices.Equal(e.host.Addresses, n.Addresses) {
		e.host = n
		e.update(func(c *policy.Compiler) { c.SetNode(n) })
	}
}

// EndpointKey returns the name of a container in the policies of hosts without Kubernetes, NAMESPACE/NAME.
func EndpointKey(a *podstate.Endpoint) string {
	e := asEndpoint(a, "")
	return policy.EndpointKey(e.Namespace, e.Name)
}

// asEndpoint returns a container of this host as an endpoint whose addresses are claimed.
func asEndpoint(a *podstate.Endpoint, node string) *policy.Endpoint {
	return &policy.Endpoint{
		Namespace: cmp.Or(a.Namespace, corev1.NamespaceDefault), Name: cmp.Or(a.Name, a.ContainerID), UID: a.UID, Node: node, Labels: a.Labels,
	}
}

// World reads the policies in the files, and the containers of this host.
func (o Options) World() (*policy.World, error) {
	files, _, err := policyFilesIn(o.Directory)
	if err != nil {
		return nil, err
	}
	w, _, err := manifest.Load(nil, files...)
	if err != nil {
		return nil, err
	}
	w.Endpoints, w.Nodes = nil, nil // those in the files have no effect
	endpoints, host, err := o.thisHost()
	if err != nil {
		return nil, err
	}
	if host != nil {
		w.Nodes = append(w.Nodes, host)
	}
	addEndpoints(w, endpoints)
	return w, nil
}

// AddThisHost adds this host's containers to the world of the agents' store, which has only those in the cluster's
// networks, and its addresses.
func (o Options) AddThisHost(w *policy.World) error {
	endpoints, host, err := o.thisHost()
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		e.Name = stored.EndpointName(e.Name, e.Node)
		w.Endpoints = slices.DeleteFunc(w.Endpoints, func(x *policy.Endpoint) bool { return x.Namespace == e.Namespace && x.Name == e.Name })
	}
	addEndpoints(w, endpoints)
	for _, n := range w.Nodes {
		if host != nil && n.Name == host.Name {
			n.Addresses = host.Addresses
		}
	}
	return nil
}

// thisHost returns this host and its containers. The host is nil if the kernel does not say its addresses.
func (o Options) thisHost() ([]*policy.Endpoint, *policy.Node, error) {
	if _, err := o.Attachments.Endpoints(); err != nil {
		return nil, nil, fmt.Errorf("read the containers of this host, which needs root: %w", err)
	}
	e := newEnforcer(o, nil)
	e.activate()
	e.readHost()
	_, _ = e.readAttachments()
	return e.compiler.Endpoints(), e.host, nil
}

// addEndpoints adds containers, and their namespaces.
func addEndpoints(w *policy.World, list []*policy.Endpoint) {
	for _, e := range list {
		if w.Endpoints = append(w.Endpoints, e); w.Namespaces[e.Namespace] == nil {
			w.Namespaces[e.Namespace] = map[string]string{corev1.LabelMetadataName: e.Namespace}
		}
	}
}
