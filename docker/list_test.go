package docker

import (
	"slices"
	"testing"
)

// TestFirewallPlugin checks which networks have the plugin with which their packets pass a firewall that drops forwarded
// packets, such as Docker's own: all that the host forwards.
func TestFirewallPlugin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ, plugin string
		want        []string
	}{
		{typeBridge, "bridge", []string{"bridge", "firewall"}},
		{typeCluster, "ptp", []string{"ptp", "firewall"}},
		{typeCluster, "fairlead-net", []string{"fairlead-net"}}, // an isolated network has a namespace of its own
		{"macvlan", "macvlan", []string{"macvlan"}},
	} {
		n := &network{Name: "n", Type: c.typ, Plugin: map[string]any{"type": c.plugin}}
		list, err := n.list(endpointInterface{})
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, p := range list.Plugins {
			types = append(types, p.Network.Type)
		}
		if !slices.Equal(types, c.want) {
			t.Errorf("%s with %s: %v, want %v", c.typ, c.plugin, types, c.want)
		}
	}
}
