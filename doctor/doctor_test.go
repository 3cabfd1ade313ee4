package doctor

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/nft"
)

// healthy returns the facts of a host with one container, web, on a bridge.
func healthy() (*Facts, *Attachment) {
	end := &kernel.LinkInfo{Index: 4, Name: "veth1", Kind: "veth", MTU: 1500, Up: true, Carrier: true, Master: 3}
	gw := netip.MustParseAddr("10.1.0.1")
	a := &Attachment{
		Network: "n", Container: "web", IfName: "eth0", Netns: "/run/netns/web", State: "ok",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.0.2/24")}, Gateways: []netip.Addr{gw}, MAC: "02:00:00:00:00:02",
		Inside: &inspect.Survey{
			Links:  []*kernel.LinkInfo{{Index: 2, Name: "eth0", MAC: "02:00:00:00:00:02", MTU: 1500, Up: true, Carrier: true}},
			Addrs:  []kernel.AddrInfo{{Index: 2, Prefix: netip.MustParsePrefix("10.1.0.2/24")}},
			Routes: []kernel.RouteInfo{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gw, Index: 2, Type: unicastType}},
		},
		HostEnd: "veth1", Paths: []Path{{From: web, Out: 2, Back: 3}},
		Ports: []attach.Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}},
	}
	f := &Facts{
		Host: &inspect.Survey{
			Links:  []*kernel.LinkInfo{uplink, bridgeLink, end},
			Addrs:  []kernel.AddrInfo{{Index: 3, Prefix: netip.MustParsePrefix("10.1.0.1/24")}, {Index: 2, Prefix: netip.MustParsePrefix("198.51.100.2/24")}},
			Routes: []kernel.RouteInfo{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Index: 2, Type: unicastType}},
		},
		Ruleset: &nft.Ruleset{}, Sysctls: map[string]string{"net/ipv4/ip_forward": "1"}, Attachments: []*Attachment{a},
	}
	return f, a
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	f, _ := healthy()
	if out := Examine(f); len(out) > 0 {
		t.Errorf("%+v", out)
	}
}

// TestAddressOfUnlistedLink checks that an address of a link that the list of links lacks, because it was created in
// between, is no reason to fail.
func TestAddressOfUnlistedLink(t *testing.T) {
	t.Parallel()
	f, _ := healthy()
	f.Host.Addrs = append(f.Host.Addrs, kernel.AddrInfo{Index: 99, Prefix: netip.MustParsePrefix("10.1.0.2/32")})
	if out := Examine(f); len(out) > 0 {
		t.Errorf("%+v", out)
	}
}

// TestFacts covers findings that the broken hosts in cmd/fairlead's tests cannot produce.
func TestFacts(t *testing.T) {
	t.Parallel()
	const reachable, failed = 2, 0x20 // NUD_REACHABLE, NUD_FAILED
	for _, tt := range []struct {
		name, fix string
		ill       func(*Facts, *Attachment)
	}{
		{"add-interrupted", "fairlead gc --all", func(_ *Facts, a *Attachment) { a.State = "interrupted" }},
		{"mac-pinned-otherwise", "let bridge set", func(_ *Facts, a *Attachment) {
			a.Objects = kernel.Objects{&kernel.Element{Set: "antispoof-macs", Key: "veth1 . 02:00:00:00:00:77"}}
		}},
		{"no-carrier", "fairlead repair", func(_ *Facts, a *Attachment) { a.Inside.Links[0].Carrier = false }},
		{"address-duplicate", "ip addr del 10.1.0.2/24", func(_ *Facts, a *Attachment) { a.Inside.Addrs[0].Duplicate = true }},
		{"address-tentative", "ip addr del 10.1.0.2/24", func(_ *Facts, a *Attachment) { a.Inside.Addrs[0].Tentative = true }},
		{"gateway-unanswered", "ip neigh flush to 10.1.0.1 dev eth0", func(_ *Facts, a *Attachment) {
			a.Inside.Neighs = []kernel.NeighInfo{{Index: 2, IP: a.Gateways[0], State: failed}}
		}},
		{"gateway-neighbour-wrong", "ip neigh del 10.1.0.1", func(_ *Facts, a *Attachment) {
			a.Inside.Neighs = []kernel.NeighInfo{{Index: 2, IP: a.Gateways[0], MAC: "02:00:00:00:00:99", State: reachable}}
		}},
		{"conntrack-full", "nf_conntrack_max=2000", func(f *Facts, _ *Attachment) {
			f.Sysctls["net/netfilter/nf_conntrack_count"], f.Sysctls["net/netfilter/nf_conntrack_max"] = "900", "1000"
		}},
		{"range-nearly-full", "fairlead gc --all", func(f *Facts, _ *Attachment) {
			f.Ranges = []RangeUse{{Network: "n", Range: "10.1.0.1-10.1.0.254", Held: 253, Size: 253, Gone: 1}}
		}},
		{"plugin-missing", "ln -s /opt/cni/bin/fairlead-cni /opt/cni/bin/bridge", func(f *Facts, _ *Attachment) {
			f.Plugins = []MissingPlugin{{"n", "bridge", []string{"/opt/cni/bin"}, "/opt/cni/bin/fairlead-cni"}}
		}},
		{"agent-away", "systemctl restart fairlead-agent (in Kubernetes: kubectl -n fairlead-system get pods -o wide)", func(f *Facts, _ *Attachment) { f.Agent = Agent{Needed: []string{"pods"}, Away: "no such file"} }},
		{"agent-store-away", "agent.yaml", func(f *Facts, _ *Attachment) {
			f.Agent = Agent{Needed: []string{"pods"}, StoreError: "etcd at http://10.0.0.1:2379: connection refused"}
		}},
		{"agent-addresses", "fairlead ipam check", func(f *Facts, _ *Attachment) {
			f.Agent = Agent{Needed: []string{"pods"}, Failures: []string{"cannot manage this node's addresses: every block of the subnet belongs to a node"}}
		}},
		{"agent-nodes-unreachable", "fairlead agent status", func(f *Facts, _ *Attachment) {
			f.Agent = Agent{Needed: []string{"pods"}, NotReached: []string{"b: this host does not use the agent's route to 10.244.1.0/24"}}
		}},
		{"agent-not-ready", "journalctl", func(f *Facts, _ *Attachment) {
			f.Agent = Agent{Needed: []string{"pods"}, Reasons: []string{"no addresses yet"}}
		}},
		{"address-held-by-another", "/x/10.1.0.2", func(_ *Facts, a *Attachment) {
			a.Held = []HeldAddr{{"/x/10.1.0.2", web, ipam.Owner{ContainerID: "db", IfName: "eth0"}, ipam.Owner{ContainerID: "web", IfName: "eth0"}, false}}
		}},
		{"forward-dropped", "sysctl -w net.bridge.bridge-nf-call-iptables=0", func(f *Facts, a *Attachment) {
			f.Sysctls["net/bridge/bridge-nf-call-iptables"] = "1"
			f.Attachments = append(f.Attachments, &Attachment{Network: "n", Container: "db", Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.0.3/24")}})
			f.Ruleset.Chains = []*nft.Chain{{Family: "ip", Table: "other", Name: "f", Type: "filter", Hook: "forward", Rules: []nft.Rule{
				rule(nft.Step{Field: "oifname", Value: ifname("cni0\x00")}, nft.Step{Field: "iifname", Value: ifname("cni0\x00")}, do("drop"))}}}
		}},
		{"rule-element-of-another", "fairlead gc --all", func(_ *Facts, a *Attachment) {
			a.Lost = []kernel.Difference{{Object: &kernel.Element{Set: "masq-n", Key: "10.1.0.2"}, What: []string{`belongs to "fairlead n old eth0"`}}}
		}},
		{"route-missing", "fairlead repair --network n --container web", func(_ *Facts, a *Attachment) {
			a.Lost = []kernel.Difference{{Object: &kernel.Route{In: kernel.Container, Dst: netip.MustParsePrefix("10.7.0.0/16"), Link: "eth0"}, What: []string{"is missing"}}}
		}},
		{"dns-loopback", "set dns.nameservers of network n to a name server that containers reach", func(_ *Facts, a *Attachment) {
			a.Resolv, a.Nameservers = "the network's configuration (dns)", []netip.Addr{netip.MustParseAddr("127.0.0.53")}
		}},
		{"gateway-silent", "fairlead repair", func(_ *Facts, a *Attachment) { a.Silent = a.Gateways }},
	} {
		f, a := healthy()
		tt.ill(f, a)
		out := Examine(f)
		if len(out) != 1 || out[0].Name != tt.name || !strings.Contains(out[0].Fix, tt.fix) {
			t.Errorf("%s: %+v", tt.name, out)
		}
		if !slices.Contains(Names(), tt.name) {
			t.Errorf("%s is no name of a finding", tt.name)
		}
	}
}

// TestHostWithoutDefaultRoute checks that the host needs a default route only if it is a container's gateway, and not for a
// container on the network of another router.
func TestHostWithoutDefaultRoute(t *testing.T) {
	t.Parallel()
	for via, want := range map[string]bool{"10.1.0.1": true, "10.1.0.254": false} {
		f, a := healthy()
		f.Host.Routes = nil
		a.Objects = append(a.Objects, &kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr(via)})
		if got := has(hostDefault(f), "host-no-default-route"); got != want {
			t.Errorf("gateway %s: %v, want %v", via, got, want)
		}
	}
}

// TestNameserverWithZone checks that the container's link-local route leads to a link-local name server.
func TestNameserverWithZone(t *testing.T) {
	t.Parallel()
	f, a := healthy()
	a.Nameservers = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}
	if out := Examine(f); len(out) != 1 || out[0].Name != "dns-unreachable" {
		t.Errorf("without the route: %+v", out)
	}
	a.Inside.Routes = append(a.Inside.Routes, kernel.RouteInfo{Dst: netip.MustParsePrefix("fe80::/64"), Index: 2, Type: unicastType})
	if out := Examine(f); len(out) > 0 {
		t.Errorf("with the route: %+v", out)
	}
}

// TestMerge: losses that follow from each other are one finding.
func TestMerge(t *testing.T) {
	t.Parallel()
	f, a := healthy()
	part := func(what string) kernel.Difference {
		return kernel.Difference{Object: &kernel.NFT{Family: "inet", Table: "fairlead", Kind: what, Name: what}, What: []string{"is missing"}}
	}
	a.Lost = []kernel.Difference{part("table"), part("chain"), part("rule")}
	if out := Examine(f); len(out) != 1 || out[0].Name != "rules-missing" || !strings.Contains(out[0].Problem, "add table") {
		t.Errorf("%+v", out)
	}
}

// TestEveryObjectKindHasAFinding: every kind of object has a description, or is listed as reported elsewhere.
func TestEveryObjectKindHasAFinding(t *testing.T) {
	t.Parallel()
	for key, w := range losses() {
		if w.name == "" || w.effect == "" || !strings.HasPrefix(key, "host ") && !strings.HasPrefix(key, "container ") {
			t.Errorf("%s: %+v", key, w)
		}
	}
}

// TestHostRouteOfInternalNetwork checks that the host's default route is wrong for a container's address only if the host
// connects the network, and that no fix deletes the default route.
func TestHostRouteOfInternalNetwork(t *testing.T) {
	t.Parallel()
	f, a := healthy()
	a.Paths = []Path{{From: web, Out: 2, Back: 2}}
	f.Host.Routes[0].Table = 254
	if out := hostRoute(f, a); len(out) != 1 || out[0].Name != "host-route-wrong" || out[0].Fix != a.repair() {
		t.Errorf("the host is the gateway: %+v", out)
	}
	a.Gateways = nil
	f.Host.Routes = append(f.Host.Routes, kernel.RouteInfo{Dst: netip.MustParsePrefix("10.1.0.0/24"), Index: 3, Table: 254, Type: unicastType},
		kernel.RouteInfo{Dst: netip.MustParsePrefix("10.1.0.2/32"), Index: 2, Table: 254, Type: unicastType})
	if out := hostRoute(f, a); len(out) != 1 || out[0].Fix != "ip route del 10.1.0.2/32 dev up0" {
		t.Errorf("the host has a route to the network: %+v", out)
	}
	f.Host.Routes = f.Host.Routes[:1]
	if out := hostRoute(f, a); len(out) != 0 {
		t.Errorf("an internal network: %+v", out)
	}
}

// TestNetworksWithOneSubnet checks two networks that assign the same address: on one bridge, in different VLANs of it, and
// on two bridges. There, the fix must not delete the route that the other network needs.
func TestNetworksWithOneSubnet(t *testing.T) {
	t.Parallel()
	second := func() (*Facts, *Attachment, *Attachment) {
		f, a := healthy()
		b := *a
		b.Network, b.Container, b.Netns, b.HostEnd, b.Ports = "m", "db", "/run/netns/db", "veth2", nil
		a.Bridge, b.Bridge = "cni0", "cni0"
		f.Host.Links = append(f.Host.Links, &kernel.LinkInfo{Index: 5, Name: "veth2", Kind: "veth", MTU: 1500, Up: true, Carrier: true, Master: 3})
		f.Attachments = append(f.Attachments, &b)
		return f, a, &b
	}
	f, a, b := second()
	want := "give the networks m and n different subnets or ranges, and attach one of them again"
	for _, x := range f.Attachments {
		if out := duplicates(f, x); len(out) != 1 || out[0].Name != "address-duplicate" || out[0].Fix != want {
			t.Errorf("%s: %+v", x.Network, out)
		}
	}
	b.Network = a.Network
	if out := duplicates(f, a); len(out) != 1 || !strings.HasPrefix(out[0].Fix, "give the containers db and web different addresses") {
		t.Errorf("one network: %+v", out)
	}
	b.Objects = kernel.Objects{&kernel.PortVLAN{Link: "veth2", First: 7, Last: 7, PVID: true}}
	if out := duplicates(f, a); len(out) > 0 {
		t.Errorf("another VLAN: %+v", out)
	}

	f, a, b = second()
	f.Host.Links = append(f.Host.Links, &kernel.LinkInfo{Index: 6, Name: "cni1", Kind: "bridge", MTU: 1500, Up: true, Carrier: true})
	f.Host.Link("veth2").Master, b.Bridge = 6, "cni1"
	f.Host.Routes = append(f.Host.Routes, kernel.RouteInfo{Dst: netip.MustParsePrefix("10.1.0.0/24"), Index: 3, Table: 254, Type: unicastType})
	if out := hostRoute(f, b); len(out) != 1 || out[0].Fix != "give the networks m and n different subnets or ranges" {
		t.Errorf("on another bridge: %+v", out)
	}
	if out := hostRoute(f, a); len(out) > 0 {
		t.Errorf("on the bridge with the route: %+v", out)
	}
}
