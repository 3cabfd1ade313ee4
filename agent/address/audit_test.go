package address

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestAuditOfHeldAddresses checks that an address is found if its container has no attachment or another node has it.
func TestAuditOfHeldAddresses(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	for key, value := range map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.0.0.0/16"}]}`, "nodes/a": `{"id": "1", "addresses": ["192.0.2.1/24"]}`, "nodes/b": `{"id": "2", "addresses": ["192.0.2.2/24"]}`,
		"blocks/default/10.0.0.0-26": `{"node": "a", "subnet": "10.0.0.0/16"}`, "addresses/default/10.0.9.9": `{"owner": "ns/p", "node": "b", "container": "other"}`,
	} {
		s.Set(key, []byte(value))
	}
	held := func(ip, container string) ipam.Allocation {
		return ipam.Allocation{Addr: netip.MustParseAddr(ip), Owner: ipam.Owner{ContainerID: container, IfName: "eth0"}}
	}
	for _, c := range []struct {
		what     string
		held     ipam.Allocation
		attached map[string]bool
		want     string
	}{
		{"attached", held("10.0.0.5", "c1"), map[string]bool{"c1 eth0": true}, ""},
		{"its attachment is another interface", held("10.0.0.5", "c1"), map[string]bool{"c1 net1": true}, "container c1 eth0 holds it but has no attachment"},
		{"no attachment", held("10.0.0.5", "c1"), map[string]bool{}, "holds it but has no attachment"},
		{"attachments are unknown", held("10.0.0.5", "c1"), nil, ""},
		{"in no block", held("10.0.1.5", "c1"), nil, "it is free in the store and in no block of this node"},
		{"another node's", held("10.0.9.9", "c1"), nil, `the store assigns it to ns/p on node "b"`},
	} {
		var got []string
		for _, f := range Audit(s, "a", &LocalState{Held: map[string][]ipam.Allocation{"default": {c.held}}, Attached: c.attached}) {
			if strings.HasPrefix(f.Subject, "address "+c.held.Addr.String()) {
				got = append(got, f.Problem)
			}
		}
		if len(got) > 1 || (len(got) == 0) != (c.want == "") || !strings.Contains(strings.Join(got, ""), c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// TestAuditOfHostLocal checks that an address that host-local assigned from another node's block is reported.
func TestAuditOfHostLocal(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	for key, value := range map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.0.0.0/16"}]}`, "nodes/a": `{"id": "1"}`, "nodes/b": `{"id": "2"}`,
		"blocks/default/10.0.0.0-26": `{"node": "a", "subnet": "10.0.0.0/16"}`, "blocks/default/10.0.0.64-26": `{"node": "b", "subnet": "10.0.0.0/16"}`,
	} {
		s.Set(key, []byte(value))
	}
	for ip, want := range map[string]string{"10.0.0.5": "", "10.0.0.70": "it is in block 10.0.0.64/26 of node b", "10.9.0.5": ""} {
		got := ""
		for _, f := range Audit(s, "a", &LocalState{HostLocal: []netip.Addr{netip.MustParseAddr(ip)}}) {
			if strings.HasPrefix(f.Subject, "address ") {
				got += f.Problem
			}
		}
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", ip, got, want)
		}
	}
}

// TestBlockOfUnknownNetwork checks that a node does not join a network that the cluster does not have.
func TestBlockOfUnknownNetwork(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return m.isReady() == nil })
	ask := m.Handlers()[local.OpBlock]
	if _, err := ask(t.Context(), []byte(`{"network": "none"}`)); err == nil || !strings.Contains(err.Error(), `the cluster has no network "none"`) {
		t.Errorf("got %v", err)
	}
	if _, err := ask(t.Context(), []byte(`{"network": "default"}`)); err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.joined["none"] || !m.joined["default"] {
		t.Errorf("joined %v", m.joined)
	}
}

// TestStatusWhileAway checks that the status names the store that does not answer, also after the first sync.
func TestStatusWhileAway(t *testing.T) {
	t.Parallel()
	b := newBed(t, twoSubnets)
	m, _ := b.node("a")
	kerneltest.Until(t, func() bool { return m.isReady() == nil })
	status := func() local.StatusResult {
		t.Helper()
		r, err := m.Handlers()[local.OpStatus](t.Context(), []byte(`{}`))
		must(t, err)
		return r.(local.StatusResult)
	}
	if r := status(); r.Store != "" || r.Node != "a" {
		t.Errorf("connected: %+v", r)
	}
	m.Disconnected(errors.New("no answer"))
	if r := status(); r.Store != "no answer" {
		t.Errorf("away: %+v", r)
	}
	m.Reconnected()
	if r := status(); r.Store != "" {
		t.Errorf("back: %+v", r)
	}
}
