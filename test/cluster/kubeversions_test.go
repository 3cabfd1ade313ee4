package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// newKubeVersions creates a cluster whose store is the Kubernetes API.
func newKubeVersions(t *testing.T) *versions {
	server := kubeServer(t)
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
	must(t, err)
	server.Apply(strings.TrimSpace(string(dir)) + "/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml")
	kerneltest.Eventually(t, func() error {
		return server.Create("/api/v1/namespaces/default/serviceaccounts", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`)
	})
	w := newKubeWorld(t, server, "a", "b")
	v := &versions{t: t, c: w.c, a: w.nodes["a"], b: w.nodes["b"], addrs: map[string]netip.Addr{}, wait: func(n *lab.Node) { w.waitReady(n.Name) }}
	for _, name := range []string{"a", "b"} {
		w.nodes[name].Flags = append(w.nodes[name].Flags, "--policy-enabled", "true")
		w.start(name)
	}
	w.waitReady("a")
	w.waitReady("b")
	v.apply = func(policies string) {
		for text := range strings.SplitSeq(policies, "---\n") {
			path := "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
			if strings.Contains(text, "ClusterNetworkPolicy") {
				path = kubeClusterPolicies
			}
			kerneltest.Eventually(t, func() error { return server.Create(path, text) }) // the type may be new
		}
	}
	v.attach = func(n *lab.Node, name, app string) netip.Addr { return kubePodOn(t, server, n, name, app) }
	v.deleted = func(name string) {
		must(t, server.Client().Delete().AbsPath(kubePods, name).Param("gracePeriodSeconds", "0").Do(t.Context()).Error())
	}
	v.status = func(n *lab.Node) string {
		out, _ := n.Fairlead(t.Context(), "policy", "status", "--kubeconfig", w.proxies[n.Name].Kubeconfig)
		return out
	}
	v.stored = func(n *lab.Node) (lines []string) {
		all, err := w.documents()
		must(t, err)
		for _, l := range all {
			if strings.HasSuffix(l, "node="+n.Name) {
				lines = append(lines, l)
			}
		}
		var node struct {
			Metadata struct{ Annotations, Labels map[string]string }
		}
		raw, err := server.Client().Get().AbsPath("/api/v1/nodes", n.Name).Do(t.Context()).Raw()
		must(t, err)
		must(t, json.Unmarshal(raw, &node))
		return append(lines, fmt.Sprint(node.Metadata), kubeConditions(t, server))
	}
	return v
}

const (
	kubePods            = "/api/v1/namespaces/default/pods"
	kubeClusterPolicies = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
)

// kubeConditions returns the status of the ClusterNetworkPolicies once it is complete, with its last transitions.
// Agents of two versions must not write it in turn.
func kubeConditions(t *testing.T, server *kubetest.Server) (text string) {
	t.Helper()
	kerneltest.Within(t, time.Minute, func() error {
		raw, err := server.Client().Get().AbsPath(kubeClusterPolicies).Do(context.Background()).Raw()
		var list struct {
			Items []struct {
				Metadata struct{ Name, ResourceVersion string }
				Status   struct{ Conditions []map[string]any }
			}
		}
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		for _, p := range list.Items {
			if text = fmt.Sprint(p); err == nil && len(p.Status.Conditions) < 2 {
				err = fmt.Errorf("the status of %s has %v", p.Metadata.Name, p.Status)
			}
		}
		return err
	})
	return text
}

// kubePodOn runs a pod: the API has it before ADD, and its address afterwards.
func kubePodOn(t *testing.T, server *kubetest.Server, n *lab.Node, name, app string) netip.Addr {
	t.Helper()
	must(t, server.Create(kubePods, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, labels: {app: `+app+`}}, spec: {nodeName: `+n.Name+`, containers: [{name: c, image: i}]}}`))
	must(t, n.Container(t.Context(), name))
	ip, err := n.AddWith(t.Context(), []string{"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + name}, name, "pods", "eth0")
	must(t, err)
	status := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %q}]}}`, ip, ip)
	must(t, server.Client().Patch(types.StrategicMergePatchType).AbsPath(kubePods, name, "status").Body([]byte(status)).Do(t.Context()).Error())
	return ip
}
