package desired

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

func snapshotOf(t *testing.T, docs string) *cluster.Snapshot {
	t.Helper()
	s := cluster.NewSnapshot()
	for line := range strings.Lines(docs) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			s.Set(key, []byte(value))
		}
	}
	for key, err := range s.Problems {
		t.Fatalf("%s: %v", key, err)
	}
	return s
}

const twoNodes = `
nodes/a {"id": "1", "addresses": ["192.0.2.1/24"]}
nodes/b {"id": "2", "addresses": ["192.0.2.2/24"]}
nodes/c {"id": "3", "addresses": ["198.51.100.3/24"]}
networks/default {"subnets": [{"cidr": "10.244.0.0/16"}, {"cidr": "10.245.0.0/24", "name": "fixed", "assign": "cluster"}], "backends": [{"type": "host-gw", "when": "direct"}, {"type": "vxlan"}], "nat": true}
blocks/default/10.244.1.0-26 {"node": "a", "subnet": "10.244.0.0/16"}
blocks/default/10.244.2.0-26 {"node": "b", "subnet": "10.244.0.0/16"}
blocks/default/10.244.3.0-26 {"node": "c", "subnet": "10.244.0.0/16"}
blocks/default/10.244.9.0-26 {"node": "removed", "subnet": "10.244.0.0/16"}
addresses/default/10.245.0.7 {"owner": "default/db-0", "fixed": true, "node": "c"}
addresses/default/10.245.0.8 {"owner": "default/db-1", "fixed": true}
addresses/default/10.245.0.9 {"owner": "default/db-2", "fixed": true, "node": "a"}
`

const isolatedNets = `
networks/blue {"isolated": true, "vni": 5000, "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "fd00:b::/64"}], "nat": true, "peers": ["green"]}
networks/green {"isolated": true, "vni": 5001, "subnets": [{"cidr": "10.1.0.0/24"}], "peers": ["blue", "red"]}
networks/red {"isolated": true, "vni": 5002, "subnets": [{"cidr": "10.0.0.0/24"}]}
networks/new {"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}]}
blocks/blue/10.0.0.0-26 {"node": "a", "subnet": "10.0.0.0/24"}
blocks/blue/10.0.0.64-26 {"node": "b", "subnet": "10.0.0.0/24"}
blocks/green/10.1.0.64-26 {"node": "c", "subnet": "10.1.0.0/24"}
blocks/red/10.0.0.0-26 {"node": "b", "subnet": "10.0.0.0/24"}
blocks/new/10.9.0.0-26 {"node": "a", "subnet": "10.9.0.0/24"}
`

// Only node c sends to network blue: from its container in network green, through its namespace of blue.
const transit = `
nodes/a {"id": "1", "addresses": ["192.0.2.1/24"]}
nodes/c {"id": "3", "addresses": ["198.51.100.3/24"]}
networks/blue {"isolated": true, "vni": 5000, "subnets": [{"cidr": "10.0.0.0/24"}], "peers": ["green"]}
networks/green {"isolated": true, "vni": 5001, "subnets": [{"cidr": "10.1.0.0/24"}], "peers": ["blue"]}
blocks/blue/10.0.0.0-26 {"node": "a", "subnet": "10.0.0.0/24"}
blocks/green/10.1.0.64-26 {"node": "c", "subnet": "10.1.0.0/24"}
`

const ipip = `
nodes/a {"id": "1", "addresses": ["192.0.2.1/24"]}
nodes/b {"id": "2", "addresses": ["192.0.2.2/24"]}
networks/default {"subnets": [{"cidr": "10.244.0.0/16"}, {"cidr": "10.245.0.0/24", "assign": "cluster"}], "backends": [{"type": "ipip"}]}
blocks/default/10.244.1.0-26 {"node": "a", "subnet": "10.244.0.0/16"}
blocks/default/10.244.2.0-26 {"node": "b", "subnet": "10.244.0.0/16"}
`

func host() Host {
	return Host{Underlay: backend.Underlay{Link: "eth0", Index: 2, MTU: 1500}, MaxLinkMTU: 1500, Uplinks: []string{"eth0"}}
}

func text(w State) string {
	var b strings.Builder
	list := func(title string, objects kernel.Objects) {
		fmt.Fprintf(&b, "# %s\n", title)
		for _, o := range objects {
			fmt.Fprintln(&b, o)
		}
	}
	list("host", w.Objects)
	for _, s := range w.Namespaces {
		list("network "+s.Network, s.Objects)
	}
	for _, p := range w.Problems {
		fmt.Fprintf(&b, "# problem: %s: %v\n", p.Node, p.Err)
	}
	return b.String()
}

// TestCompile compares the desired state with golden files, written as ip(8) and nft(8) lines.
func TestCompile(t *testing.T) {
	t.Parallel()
	for name, docs := range map[string]string{"default": twoNodes, "isolated": twoNodes + isolatedNets, "transit": transit, "ipip": ipip, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := snapshotOf(t, docs)
			self := &cluster.Node{Name: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
			w := Compile(s, self, host())
			if again := Compile(s, self, host()); !reflect.DeepEqual(text(w), text(again)) {
				t.Error("compiling the same snapshot again gives a different state")
			}
			file := filepath.Join("testdata", name+".golden")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, []byte(text(w)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != text(w) {
				t.Errorf("%v: the desired state is\n%s", err, text(w))
			}
			if w.NeedsVNI != (name == "isolated") {
				t.Errorf("NeedsVNI is %v", w.NeedsVNI)
			}
		})
	}
}

// TestNATLinksHaveOwnAddresses checks that the addresses of NAT links are unique for any number of networks.
func TestNATLinksHaveOwnAddresses(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	var present []string
	for i := range natSlots + 1 { // one more than there are slots
		name := fmt.Sprint("n", i)
		s.Networks[name] = &cluster.Network{Name: name, Isolated: true, NAT: true}
		present = append(present, name)
	}
	seen, links := map[netip.Addr]bool{}, map[string]bool{}
	clouds := netip.MustParsePrefix("169.254.168.0/22") // for example 169.254.169.254 and 169.254.170.2
	ends := natLinks(s, present)
	if len(ends) != natSlots-512 {
		t.Errorf("%d NAT links, want one for each slot that is not a cloud's", len(ends))
	}
	for name, e := range ends {
		if clouds.Contains(e.four[0]) {
			t.Errorf("%s has %s, which may be a cloud service", name, e.four[0])
		}
		for _, a := range []netip.Addr{e.four[0], e.four[1], e.v6[0], e.v6[1]} {
			if seen[a] || !natRange(a.Is6()).Contains(a) {
				t.Errorf("%s has %s, which is not unique or out of range", name, a)
			}
			seen[a] = true
		}
		if links[e.link] || len(e.link) > 15 {
			t.Errorf("%s has the link %s", name, e.link)
		}
		links[e.link] = true
		if p := netip.PrefixFrom(e.four[0], 31); !p.Contains(e.four[1]) {
			t.Errorf("%s: %s and %s are not a pair", name, e.four[0], e.four[1])
		}
	}
}

// TestClampOnlyLargerLinks checks that TCP is clamped only if a container's link has a larger MTU than a tunnel,
// whatever MTU the network configures.
func TestClampOnlyLargerLinks(t *testing.T) {
	t.Parallel()
	self := &cluster.Node{Name: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	for _, configured := range []int{0, 1400, 1500} {
		s := snapshotOf(t, twoNodes)
		s.Networks[cluster.DefaultNetwork].MTU = configured
		for largest, want := range map[int]bool{0: false, 1450: false, 1451: true, 1500: true, 9000: true} {
			h := host()
			h.MaxLinkMTU = largest
			if got := strings.Contains(text(Compile(s, self, h)), "maxseg"); got != want {
				t.Errorf("MTU %d, links of %d bytes: clamped %v, want %v", configured, largest, got, want)
			}
		}
	}
}
