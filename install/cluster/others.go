package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Other is another pod network that is installed.
type Other struct {
	Product   string // such as "flannel"
	DaemonSet string // NAMESPACE/NAME; "": it has none
	Node      string // on which it runs, if it has no DaemonSet
}

func (o Other) String() string {
	if o.DaemonSet == "" {
		return fmt.Sprintf("%s (node %s)", o.Product, o.Node)
	}
	return fmt.Sprintf("%s (DaemonSet %s)", o.Product, o.DaemonSet)
}

// products maps the names of the DaemonSets of other pod networks to the products.
func products() map[string]string {
	return map[string]string{
		"kube-flannel-ds": "flannel", "kube-flannel": "flannel", "canal": "Calico with flannel", "calico-node": "Calico",
		"cilium": "Cilium", "kindnet": "kindnet", "weave-net": "Weave", "kube-router": "kube-router",
		"antrea-agent": "Antrea", "kube-ovn-cni": "Kube-OVN", "ovnkube-node": "OVN-Kubernetes", "rke2-canal": "Calico with flannel",
		"aws-node": "Amazon's VPC CNI", "anetd": "Google's Dataplane V2", "terway": "Terway", "terway-eniip": "Terway",
	}
}

// Others returns the other pod networks in all namespaces.
func (c *Client) Others(ctx context.Context) (found []Other, err error) {
	sets, err := list[metav1.PartialObjectMetadata](ctx, c, pathOf("DaemonSet", ""), "")
	if err != nil {
		return nil, err
	}
	known := products()
	for _, s := range sets {
		name := s.Name
		for _, arch := range []string{"-amd64", "-arm64", "-arm", "-ppc64le", "-s390x"} {
			name = strings.TrimSuffix(name, arch) // old manifests have a DaemonSet for each architecture
		}
		if product := known[name]; product != "" {
			found = append(found, Other{Product: product, DaemonSet: s.Namespace + "/" + s.Name})
		}
	}
	nodes, err := list[metav1.PartialObjectMetadata](ctx, c, pathOf("Node", ""), "")
	if i := slices.IndexFunc(nodes, hasK3sFlannel); i >= 0 {
		found = append(found, Other{Product: k3sFlannel, Node: nodes[i].Name})
	}
	slices.SortFunc(found, func(a, b Other) int { return strings.Compare(a.DaemonSet, b.DaemonSet) })
	return found, err
}

// k3sFlannel is the pod network of k3s. It is a part of k3s, and has no DaemonSet.
const k3sFlannel = "the flannel of k3s"

// hasK3sFlannel reports whether a Node is a server of k3s with its own flannel. An annotation has the server's arguments, a
// list in JSON.
func hasK3sFlannel(node metav1.PartialObjectMetadata) bool {
	var words []string
	_ = json.Unmarshal([]byte(node.Annotations["k3s.io/node-args"]), &words) // other Nodes do not have it
	return slices.Contains(words, "server") && argument(words, "flannel-backend") != "none"
}
