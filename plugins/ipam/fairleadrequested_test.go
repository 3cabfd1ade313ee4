package ipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
)

// A cluster address can be requested even if the configuration selects no pool. For an address of another pool, the
// error says what to configure.
func TestFairleadRequestedClusterAddress(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeOf(t, `{"subnets": [{"cidr": "10.244.0.0/26", "block": 28}, {"cidr": "fd00:244::/120", "block": 124},
		{"cidr": "10.247.0.0/28", "assign": "cluster"}, {"cidr": "10.248.0.0/28", "assign": "cluster"},
		{"name": "two", "cidr": "10.251.0.0/30", "assign": "cluster"}, {"name": "two", "cidr": "10.252.0.0/29", "assign": "cluster"}]}`))
	request := func(id, ip string) string {
		t.Helper()
		return strings.Join(ipsOf(t, m.must(call{verb: "ADD", id: id, args: "IP=" + ip, conf: fairleadOf("")})), ", ")
	}
	if got := request("c1", "10.247.0.9"); !strings.HasPrefix(got, "10.247.0.9/28 10.247.0.1, fd00:244::") {
		t.Errorf("got %s", got)
	}
	if got := request("c2", "10.248.0.9"); !strings.HasPrefix(got, "10.248.0.9/28 10.248.0.1, fd00:244::") {
		t.Errorf("got %s", got)
	}
	m.wantError(call{verb: "ADD", id: "c3", args: "IP=10.247.0.9", conf: fairleadOf("")}, 100, "10.247.0.9 belongs to c1 eth0 on node a")
	m.wantError(call{verb: "ADD", id: "c3", args: "IP=10.251.0.2", conf: fairleadOf("")}, 7,
		`requested IP 10.251.0.2: it is in pool "two" (10.251.0.0/30), which this configuration does not select: set "pool": "two" in "ipam"`)
	m.wantError(call{verb: "ADD", id: "c3", args: "IP=10.9.0.2", conf: fairleadOf("")}, 7, "an attachment gets one address from each of 10.244.0.0/26, fd00:244::/120")
	pool := fairleadOf(`, "pool": "two"`)
	if got := ipsOf(t, m.must(call{verb: "ADD", id: "c4", args: "IP=10.252.0.2", conf: pool})); fmt.Sprint(got) != "[10.252.0.2/29 10.252.0.1]" {
		t.Errorf("want an address in the pool's second subnet: %v", got)
	}
}

// STATUS reports that a cluster pool or a whereabouts range is full before ADD fails, and that it is usable after a
// release. A pool whose pods have fixed addresses may be full.
func TestStatusOfFullPool(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeFile(t))
	pool, fixed := fairleadOf(`, "pool": "fixed"`), fairleadOf(`, "pool": "fixed", "fixed": true`)
	lan := strings.Replace(whereaboutsOf(`"range": "192.168.2.0/29"`), "1.0.0", "1.1.0", 1)
	for plugin, conf := range map[string]string{"fairlead-ipam": pool, "whereabouts": lan} {
		status := func() (int, string) { return m.plugin(plugin, call{verb: "STATUS", conf: conf}) }
		last := ""
		for i := 1; ; i++ {
			exitCode, stdout := status()
			id := fmt.Sprint(plugin, i)
			code, out := m.plugin(plugin, call{verb: "ADD", id: id, conf: conf})
			if code != 0 {
				if n, msg := message(t, stdout); i < 5 || exitCode == 0 || n != 50 || !strings.Contains(msg, "no IP addresses available in") {
					t.Errorf("%s: ADD %d failed with %s, but STATUS before it returned %d %s", plugin, i, out, exitCode, stdout)
				}
				break
			}
			if exitCode != 0 {
				t.Errorf("%s: STATUS failed before ADD %d, which succeeded: %s", plugin, i, stdout)
			}
			last = id
		}
		if code, out := m.plugin(plugin, call{verb: "DEL", id: last, conf: conf}); code != 0 {
			t.Fatal(out)
		}
		if code, out := status(); code != 0 {
			t.Errorf("%s: after a DEL: %s", plugin, out)
		}
	}
	m.must(call{verb: "ADD", id: "last", conf: pool})
	m.must(call{verb: "STATUS", conf: fixed})
}

// TestBlockOfSecondSubnet verifies that ADD and STATUS ask for a block of each subnet of a pool, while the first one is
// being replaced and has no address to allocate.
func TestBlockOfSecondSubnet(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeOf(t, `{"subnets": [{"cidr": "10.246.0.0/26", "block": 28, "exclude": ["10.246.0.0/26"]}, {"cidr": "10.244.0.0/26", "block": 28}]}`))
	for i := range 40 { // more than two blocks have
		if got := ipsOf(t, m.must(call{verb: "ADD", id: fmt.Sprint("c", i), conf: fairleadOf("")})); len(got) != 1 || !strings.HasPrefix(got[0], "10.244.0.") {
			t.Fatalf("container %d has %v", i, got)
		}
		m.must(call{verb: "STATUS", conf: fairleadOf("")})
	}
}

// TestStatusDuringClaim checks that STATUS succeeds if the agent claims the cluster's last block between STATUS' look at this
// node's blocks and its question to the agent.
func TestStatusDuringClaim(t *testing.T) {
	t.Parallel()
	for _, claims := range []bool{true, false} {
		m := newMember(t, "a")
		n := &local.Network{Name: "default", Node: "a", Subnets: []local.Subnet{{CIDR: netip.MustParsePrefix("10.244.0.0/26"), Blocks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/30")}}}}
		if err := m.dir().Write(n); err != nil {
			t.Fatal(err)
		}
		m.must(call{verb: "ADD", id: "one", conf: fairleadOf("")}) // the block's only address
		l, err := address.Listen(m.dir().Socket())
		if err != nil {
			t.Fatal(err)
		}
		status := func(context.Context, json.RawMessage) (any, error) {
			if claims {
				n.Subnets[0].Blocks = append(n.Subnets[0].Blocks, netip.MustParsePrefix("10.244.0.16/28"))
				if err := m.dir().Write(n); err != nil {
					t.Error(err)
				}
			}
			return local.StatusResult{Node: "a"}, nil
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = (&address.Server{Handlers: map[string]address.Handler{local.OpStatus: status}}).Serve(ctx, l)
		}()
		if claims {
			m.must(call{verb: "STATUS", conf: fairleadOf("")})
		} else {
			m.wantError(call{verb: "STATUS", conf: fairleadOf("")}, 50, "this node's blocks of 10.244.0.0/26 are full\nand the cluster has no more blocks")
		}
		end()
		<-done
	}
}
