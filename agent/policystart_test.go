package agent

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const denyPods = `{"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": "deny"},
"spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
"ingress": [{"action": "Deny", "from": [{"namespaces": {"matchLabels": {"team": "b"}}}]}]}}`

// TestPolicyKnowsNetworksAtStart starts an agent with a saved copy of the store. The first rules that it writes already
// drop the packets of unknown pods of the cluster's network, but not those of the tunnels of other nodes, and not those of
// addresses that no pod gets. With policies in files, no container of another host is known, and nothing is dropped.
func TestPolicyKnowsNetworksAtStart(t *testing.T) {
	t.Parallel()
	const tunnel = "10.7.2.0"
	for mode, want := range map[string]bool{"store": true, "files": false} {
		dir, policies, content := t.TempDir(), t.TempDir(), newStore(t)
		cache := newStoreCache(filepath.Join(dir, "fairlead", "snapshot"), func() {}, quietLog())
		entries := []store.Entry{
			{Key: "networks/" + cluster.DefaultNetwork, Value: []byte(`{"subnets": [{"cidr": "10.7.0.0/16", "exclude": ["10.7.128.0/17"]}], "backend": {"type": "vxlan"}}`), Revision: 1},
			{Key: "nodes/b", Value: []byte(`{"id": "b", "addresses": ["192.0.2.2/24"]}`), Revision: 1},
			{Key: "blocks/default/" + tunnel + "-26", Value: []byte(`{"node": "b", "subnet": "10.7.0.0/16"}`), Revision: 1},
			{Key: "policies/clusternetworkpolicy/deny", Value: []byte(denyPods), Revision: 1},
		}
		cache.Reset(source.DecodeAll(entries), 1)
		for _, e := range entries {
			if _, err := content.Commit(t.Context(), store.Op{Key: e.Key, Value: e.Value}); err != nil {
				t.Fatal(err)
			}
		}
		err := os.MkdirAll(filepath.Join(dir, "fairlead"), 0o700)
		cache.save()
		boot, bootErr := bootid.Read()
		err = errors.Join(err, bootErr, os.WriteFile(filepath.Join(policies, "deny.json"), []byte(denyPods), 0o600),
			podstate.Open(local.Open(dir, filepath.Join(dir, "r"))).WriteEndpoint(&podstate.Endpoint{
				Network: "pods", ContainerID: "c", IfName: "eth0", Boot: boot, Addresses: []netip.Addr{netip.MustParseAddr("10.7.0.5")},
			}))
		if err != nil {
			t.Fatal(err)
		}
		c := &config.Config{Node: "a", Network: simulated(), Policy: config.Policy{Enabled: true}}
		if mode == "files" {
			c.Policy.Directory = policies
		}
		a, err := newAgent(Options{Config: c, Store: content, Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog()}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
		if err != nil {
			t.Fatal(err)
		}
		netns := kerneltest.Netns(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- kerneltest.Inside(netns, func() error { return a.policy.Run(ctx) }) }()
		kerneltest.Until(t, func() bool { return a.policy.Problem() == "" })
		out := kerneltest.In(t, netns, "nft", "list", "ruleset")
		stop()
		<-ended
		for text, want := range map[string]bool{"{ 10.7.0.0/17 }": want, tunnel: want} {
			if strings.Contains(out, text) != want {
				t.Errorf("%s: the rules have %s: %v, want %v:\n%s", mode, text, !want, want, out)
			}
		}
	}
}
