package agent

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// hostile returns invalid keys and values below every prefix, as no agent writes them.
func hostile() map[string]string {
	const whole = `{"id": "1", "node": "a", "owner": "x", "network": "default", "addresses": ["192.0.2.9/24"], "subnets": [{"cidr": "10.9.0.0/16"}]}`
	out := map[string]string{
		"networks/evil": `{"subnets": [{"cidr": "10.244.0.0/8"}], "backends": [{"type": "vxlan", "port": 99999999999999999999}]}`,
		"networks/null": `null`, "networks/list": `[]`, "networks/none": "", "networks/deep": strings.Repeat("[", 20000),
		"nodes/null": `null`, "nodes/number": `1e999`, "nodes/zero": `{"addresses": [""]}`, "nodes/evil": `{"id": "2", "addresses": ["127.0.0.1/8"]}`,
		"blocks/default/0.0.0.0-0": `{"node": "a"}`, "blocks/default/10.0.0.0-8": `{"node": "a/../b"}`, "blocks/default/fd00::-0": whole,
		"blocks/none/10.0.0.0-26": whole, "addresses/default/224.0.0.1": whole, "addresses/default/10.244.0.1%eth0": whole, "addresses/none/10.0.0.1": whole,
		"vnis/1": "x", "alive/": "x", "fixed/default": "x",
	}
	for _, prefix := range append(cluster.Followed(), cluster.AlivePrefix, cluster.FixedPrefix, cluster.EndpointsPrefix+"a/", "endpoints/a/c/", "blocks/default/", "addresses/default/", "") {
		for _, name := range []string{"", "/", "..", "../../x", "a\nb", "a\x00b", "\xff\xfe", "\x1b[2J", strings.Repeat("n", 300), strings.Repeat("n", 3000), "x/"} {
			if prefix+name != "" {
				out[prefix+name] = whole
			}
		}
	}
	return out
}

// TestHostileStore checks that an agent works with invalid keys in the store and reports each of them.
func TestHostileStore(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	client := c.Client()
	ctx := context.Background()
	for key, value := range hostile() {
		if _, err := client.Put(ctx, "/fairlead/"+key, value); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
	}
	dir := t.TempDir()
	a, err := newAgent(Options{
		Config: &config.Config{Node: "a", Network: simulated()}, Store: c.Store(t), Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog(),
	}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
	if err != nil {
		t.Fatal(err)
	}
	writeRecordOf(t, attach.Open(a.o.Run), "10.128.0.2/26")
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	s := c.Store(t)
	wait := func(what string, is func() bool) {
		t.Helper()
		kerneltest.Eventually(t, func() error {
			if is() {
				return nil
			}
			return fmt.Errorf("no %s; the agent's state is %+v, its problems are %q", what, a.State().truncated(), a.manager.Problems())
		})
	}
	has := func(key string) func() bool { return func() bool { _, err := s.Get(ctx, key); return err == nil } }
	wait("the node's key", has(cluster.NodeKey("a")))
	wait("the endpoint's key", has(cluster.EndpointKey("a", "c", "eth0")))
	wait("ready", func() bool { return a.State().Ready })
	invalid := a.State().Invalid
	for _, key := range []string{`"networks/evil"`, `"nodes/number"`, `"blocks/default/0.0.0.0-0"`, `"addresses/default/10.244.0.1%eth0"`, `"nodes/\xff\xfe"`} {
		if !slices.ContainsFunc(invalid, func(l string) bool { return strings.Contains(l, "ignored key "+key+" in the store") }) {
			t.Errorf("%s is not reported as ignored; reported:\n%s", key, strings.Join(invalid, "\n"))
		}
	}
	if _, err := client.Delete(ctx, "/fairlead/networks/evil"); err != nil {
		t.Fatal(err)
	}
	wait("networks/evil to disappear", func() bool {
		return !slices.ContainsFunc(a.State().Invalid, func(l string) bool { return strings.Contains(l, "networks/evil") })
	})
}
