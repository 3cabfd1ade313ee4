package agent

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRefusedRoutes checks that a next hop which is on none of the node's links concerns that route only. Other errors are
// the node's.
func TestRefusedRoutes(t *testing.T) {
	t.Parallel()
	ownHost(t)
	kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	kerneltest.Run(t, "ip", "link", "set", "up0", "up")
	kerneltest.Run(t, "ip", "link", "set", "up1", "up")
	kerneltest.Run(t, "ip", "address", "add", "192.0.2.1/24", "dev", "up0")
	k, err := newKernelReconciler(&config.Config{Interface: "up0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	route := func(dst, via string) *kernel.Route {
		return &kernel.Route{Dst: netip.MustParsePrefix(dst), Link: "up0", Via: netip.MustParseAddr(via), Proto: backend.Protocol}
	}
	several := route("10.4.0.0/24", "198.51.100.3")
	several.Via = netip.Addr{}
	several.Hops = []kernel.Hop{{Via: netip.MustParseAddr("198.51.100.3"), Weight: 1}, {Via: netip.MustParseAddr("198.51.100.4"), Weight: 1}}
	noLink := route("10.5.0.0/24", "192.0.2.9")
	noLink.Link = "up9"
	rep := k.reconcile(&desired.State{Objects: kernel.Objects{
		route("10.1.0.0/24", "192.0.2.2"), route("10.2.0.0/24", "198.51.100.2"), several, noLink,
	}}, true)
	var hops []string
	for _, p := range refusedRoutes(rep) {
		hops = append(hops, p.Node)
		if p.OfThisNode() || !strings.Contains(p.Err.Error(), "ip route add 10.") {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(hops, ", "); got != "next hop 198.51.100.2, next hop 198.51.100.3" {
		t.Errorf("next hops %s", got)
	}
	if len(rep.Errors) != 1 || !strings.Contains(rep.Errors[0].Error(), "up9") {
		t.Errorf("errors of the node: %v", rep.Errors)
	}
	if out := kerneltest.Run(t, "ip", "route", "show", "proto", "103"); strings.TrimSpace(out) != "10.1.0.0/24 via 192.0.2.2 dev up0" {
		t.Errorf("routes:\n%s", out)
	}
}

// TestWithoutFamily checks that a node announces only prefixes of families of which it has an address.
func TestWithoutFamily(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParsePrefix("10.244.1.0/26"), netip.MustParsePrefix("fd00::/122")
	for _, local := range []string{"192.0.2.1", "2001:db8::1", "192.0.2.1 2001:db8::1"} {
		c := &bgp.Config{Advertise: []netip.Prefix{v4, v6}}
		for f := range strings.FieldsSeq(local) {
			c.Local = append(c.Local, netip.MustParseAddr(f))
		}
		silent := withoutFamily(c)
		if slices.Contains(c.Advertise, v4) != strings.Contains(local, ".") || slices.Contains(c.Advertise, v6) != strings.Contains(local, ":") || len(silent)+len(c.Advertise) != 2 {
			t.Errorf("%s: announces %v, not %v", local, c.Advertise, silent)
		}
	}
	if withoutFamily(nil) != nil {
		t.Error("a node without BGP has prefixes")
	}
}

// TestSessionProblems checks that a lost session is a problem of a router, or of a node that no other backend connects.
func TestSessionProblems(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	by := map[string]string{"b": cluster.BGP, "c": cluster.VXLAN, "gone": cluster.BGP}
	for name, address := range map[string]string{"b": "192.0.2.2/24", "c": "192.0.2.3/24", "idle": "192.0.2.4/24"} {
		s.Nodes[name] = &cluster.Node{Name: name, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
	}
	var lost []bgp.Neighbour
	for i := range 4 {
		lost = append(lost, bgp.Neighbour{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), ASN: 64512})
	}
	lost = append(lost, bgp.Neighbour{Address: netip.MustParseAddr("192.0.2.254"), ASN: 65000, Router: true})
	var got []string
	for _, p := range sessionProblems(lost, s, by) {
		text, _, _ := strings.Cut(p.Err.Error(), ": check")
		got = append(got, p.Node+" "+text)
	}
	want := []string{"b bgp: no session with 192.0.2.2 (AS 64512) for 30s", "BGP router 192.0.2.254 bgp: no session with 192.0.2.254 (AS 65000) for 30s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// newBGPAgent returns an agent of a cluster with the backend bgp, the network's entry, and the agent's address.
func newBGPAgent(t *testing.T, address string) (*Agent, store.Entry) {
	t.Helper()
	lib := t.TempDir()
	c := &config.Config{Node: "a", Store: config.Store{File: filepath.Join(lib, "store")}}
	s, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	a, err := newAgent(Options{Config: c, Store: s, Lib: lib, Run: filepath.Join(lib, "r"), Log: quietLog()}, &recorder{netip.MustParsePrefix(address + "/32")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.speaker.Stop)
	network := store.Entry{Key: cluster.NetworkKey(cluster.DefaultNetwork), Value: []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}], "backends": [{"type": "bgp"}]}`), Revision: 1}
	a.storeCache.Reset(source.DecodeAll([]store.Entry{network}), 1)
	return a, network
}

// TestSessionCheckedLater checks that the agent reconciles again when a neighbour may have been without a session for too
// long.
func TestSessionCheckedLater(t *testing.T) {
	t.Parallel()
	a, network := newBGPAgent(t, "127.0.0.9")
	if again := a.reconcile(t.Context()); again != 0 {
		t.Errorf("without a neighbour: again after %v (%v)", again, a.status.NotReady())
	}
	b := store.Entry{Key: "nodes/b", Value: []byte(`{"id": "2", "addresses": ["192.0.2.2/24"]}`), Revision: 2}
	a.storeCache.Reset(source.DecodeAll([]store.Entry{network, b}), 2)
	if again := a.reconcile(t.Context()); again <= 0 || again > sessionPatience {
		t.Errorf("with a neighbour that has no session: again after %v, want at most %v", again, sessionPatience)
	}
}

// TestSpeakerStartsLater starts the agent while another program has BGP's port. The agent tries again.
func TestSpeakerStartsLater(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.10:179")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, _ := newBGPAgent(t, "127.0.0.10")
	if again := a.reconcile(t.Context()); again <= 0 || again > lastRetry {
		t.Errorf("again after %v, want at most %v", again, lastRetry)
	}
	l.Close() // a process that another test starts may have the socket for some time
	kerneltest.Until(t, func() bool { return a.reconcile(t.Context()) == 0 })
}
