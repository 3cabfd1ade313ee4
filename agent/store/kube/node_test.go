package kube_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/agent/store/kube"
)

// TestNodeAddresses checks that a node is reached at the first InternalIP of each family that other nodes can reach.
func TestNodeAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list []string
		want string
	}{
		{[]string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"}, "[192.0.2.1 2001:db8::1]"},
		{[]string{"fe80::1", "169.254.7.7", "192.0.2.1", "2001:db8::1"}, "[192.0.2.1 2001:db8::1]"},
		{[]string{"fe80::1", "192.0.2.1"}, "[192.0.2.1]"},
		{[]string{"::ffff:192.0.2.1", "192.0.2.2", "2001:db8::1"}, "[192.0.2.1 2001:db8::1]"},
		{[]string{"", "node-1", "192.0.2.1"}, "[192.0.2.1]"},
		{nil, "[]"},
	} {
		n := &corev1.Node{}
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"})
		for _, a := range c.list {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		if got := fmt.Sprint(kube.NodeAddresses(n)); got != c.want {
			t.Errorf("%v: %s, want %s", c.list, got, c.want)
		}
	}
}
