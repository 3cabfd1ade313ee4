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
// drop the packets of unknown pods of the cluster's network.
func TestPolicyKnowsNetworksAtStart(t *testing.T) {
	t.Parallel()
	dir, policies := t.TempDir(), t.TempDir()
	cache := newStoreCache(filepath.Join(dir, "fairlead", "snapshot"), func() {}, quietLog())
	network := store.Entry{Key: "networks/" + cluster.DefaultNetwork, Value: []byte(`{"subnets": [{"cidr": "10.7.0.0/16"}], "backend": {"type": "host-gw"}}`), Revision: 1}
	cache.Reset(source.DecodeAll([]store.Entry{network}), 1)
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
	c := &config.Config{Node: "a", Network: simulated(), Policy: config.Policy{Enabled: true, Directory: policies}}
	a, err := newAgent(Options{Config: c, Store: newStore(t), Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog()}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
	if err != nil {
		t.Fatal(err)
	}
	netns := kerneltest.Netns(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- kerneltest.Inside(netns, func() error { return a.policy.Run(ctx) }) }()
	defer func() { stop(); <-ended }()
	kerneltest.Until(t, func() bool { return a.policy.Problem() == "" })
	if out := kerneltest.In(t, netns, "nft", "list", "ruleset"); !strings.Contains(out, "10.7.0.0/16") {
		t.Errorf("the rules do not have the cluster's network:\n%s", out)
	}
}
