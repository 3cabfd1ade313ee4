package backend_test

import (
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
)

// TestKeyForFlannel checks that flanneld reads the key that the device uses, also during a rotation.
func TestKeyForFlannel(t *testing.T) {
	t.Parallel()
	n, self := network(cluster.Backend{Type: cluster.WireGuard}), node("a", "192.0.2.1/24")
	self.WireGuard, self.Previous = key("next"), key("now")
	if got := backend.Lease(n, self).PublicKey; got != key("now") {
		t.Errorf("during a rotation: %s, want %s", got, key("now"))
	}
	self.Previous = ""
	if got := backend.Lease(n, self).PublicKey; got != key("next") {
		t.Errorf("after the rotation: %s, want %s", got, key("next"))
	}
}
