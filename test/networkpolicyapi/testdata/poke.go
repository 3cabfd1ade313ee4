package kubernetes

import (
	"testing"

	k8sclient "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sigs.k8s.io/network-policy-api/conformance/utils/config"
)

// Poke records a connection attempt and whether it must succeed.
var Poke func(t *testing.T, namespace, pod, protocol, host string, port int32, connects bool)

// PokeServer replaces the function that makes the attempt in a cluster.
func PokeServer(t *testing.T, _ k8sclient.Interface, _ *rest.Config, namespace, pod, protocol, host string, port int32, _ config.TimeoutConfig, connects bool) {
	Poke(t, namespace, pod, protocol, host, port, connects)
}
