package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Other is another pod network that is installed.
type Other struct {
	Product   string // such as "flannel"
	DaemonSet string // NAMESPACE/NAME
}

func (o Other) String() string { return fmt.Sprintf("%s (DaemonSet %s)", o.Product, o.DaemonSet) }

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
			found = append(found, Other{product, s.Namespace + "/" + s.Name})
		}
	}
	slices.SortFunc(found, func(a, b Other) int { return strings.Compare(a.DaemonSet, b.DaemonSet) })
	return found, nil
}
