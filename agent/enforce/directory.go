package enforce

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
)

// policyFiles names the directory's files in errors of an ADD that waits for them.
const policyFiles = "policy files"

// directoryEvery is the interval between looks at the directory.
const directoryEvery = time.Second

// directory follows the policies in the files of a directory. Their endpoints are the containers of this host. If a file
// is invalid, all that was in force stays in force.
type directory struct {
	e     *Enforcer
	stamp string
	have  *policy.World // what the compiler has
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

// look reads the files if they have changed.
func (d *directory) look() {
	files, stamp, err := policyFilesIn(d.e.o.Directory)
	if stamp == d.stamp && err == nil {
		return
	}
	var w *policy.World
	if err == nil {
		w, _, err = manifest.Load(nil, files...)
	}
	if err != nil {
		if text := "error: " + err.Error(); d.stamp != text {
			d.stamp = text
			d.e.o.Log.Error("network policy does not change, because the policies cannot be read", "error", err)
		}
		return
	}
	d.stamp = stamp
	d.apply(w)
	d.e.synced(policyFiles)
}

// policyFilesIn returns the files of a directory, and a text that changes with them.
func policyFilesIn(dir string) (files []string, stamp string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // of the target of a link
		if err != nil {
			return nil, "", err
		}
		if info.IsDir() {
			continue
		}
		files = append(files, path)
		stamp += fmt.Sprintln(e.Name(), info.Size(), info.ModTime().UnixNano())
	}
	return files, "files\n" + stamp, nil
}

// apply replaces the policies and the labels of namespaces. Pods and nodes in the files have no effect.
func (d *directory) apply(w *policy.World) {
	d.e.update(func(c *policy.Compiler) {
		c.SetNode(thisHost(d.e.o.Node))
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

// thisHost returns this host as a node.
func thisHost(name string) *policy.Node {
	n := &policy.Node{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}
	list, _ := net.InterfaceAddrs() // without them, an address of the host could be in a set of containers
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			n.Addresses = append(n.Addresses, p.Addr().Unmap().WithZone(""))
		}
	}
	return n
}

// asEndpoint returns a container of this host as an endpoint whose addresses are claimed.
func asEndpoint(a *podstate.Endpoint, node string) *policy.Endpoint {
	return &policy.Endpoint{
		Namespace: cmp.Or(a.Namespace, corev1.NamespaceDefault), Name: cmp.Or(a.Name, a.ContainerID), UID: a.UID, Node: node, Labels: a.Labels,
	}
}
