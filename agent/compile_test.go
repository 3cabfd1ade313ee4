package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

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

func host() Host {
	return Host{Underlay: backend.Underlay{Link: "eth0", Index: 2, MTU: 1500}, Tallest: 1500}
}

func text(w Wanted) string {
	var b strings.Builder
	list := func(title string, objects kernel.Objects) {
		fmt.Fprintf(&b, "# %s\n", title)
		for _, o := range objects {
			fmt.Fprintln(&b, o)
		}
	}
	list("host", w.Objects)
	for _, s := range w.Spaces {
		list("network "+s.Network, s.Objects)
	}
	for _, p := range w.Problems {
		fmt.Fprintf(&b, "# problem: %s: %v\n", p.Node, p.Err)
	}
	return b.String()
}

// What a node holds, in the words of ip(8) and nft(8).
func TestCompile(t *testing.T) {
	t.Parallel()
	for name, docs := range map[string]string{"default": twoNodes, "isolated": twoNodes + isolatedNets, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := snapshotOf(t, docs)
			self := &cluster.Node{Name: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
			w := Compile(s, self, host())
			if again := Compile(s, self, host()); !reflect.DeepEqual(text(w), text(again)) {
				t.Error("the same snapshot gives something else the second time")
			}
			file := filepath.Join("testdata", name+".golden")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, []byte(text(w)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != text(w) {
				t.Errorf("%v: wanted is\n%s", err, text(w))
			}
			if w.needsVNI != (name == "isolated") {
				t.Errorf("a VNI is needed: %v", w.needsVNI)
			}
		})
	}
}

// Ways out have addresses of their own, however many networks there are.
func TestNATEnds(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	var present []string
	for i := range natPlaces + 1 { // more than there is room for
		name := fmt.Sprint("n", i)
		s.Networks[name] = &cluster.Network{Name: name, Isolated: true, NAT: true}
		present = append(present, name)
	}
	seen, links := map[netip.Addr]bool{}, map[string]bool{}
	clouds := netip.MustParsePrefix("169.254.168.0/22") // 169.254.169.254, 169.254.170.2
	ends := natEnds(s, present)
	if len(ends) != natPlaces-512 {
		t.Errorf("%d ways out, want one for each pair of addresses that no cloud has", len(ends))
	}
	for name, e := range ends {
		if clouds.Contains(e.four[0]) {
			t.Errorf("%s has %s, which may be a cloud's service", name, e.four[0])
		}
		for _, a := range []netip.Addr{e.four[0], e.four[1], e.v6[0], e.v6[1]} {
			if seen[a] || !natRange(a.Is6()).Contains(a) {
				t.Errorf("%s has %s, which is another's or out of range", name, a)
			}
			seen[a] = true
		}
		if links[e.link] || len(e.link) > 15 {
			t.Errorf("%s has the link %s", name, e.link)
		}
		links[e.link] = true
		if p := netip.PrefixFrom(e.four[0], 31); !p.Contains(e.four[1]) {
			t.Errorf("%s: %s and %s are no pair", name, e.four[0], e.four[1])
		}
	}
}

// Kicks that come together are one look; a stream of them does not put it off.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace()
	began := time.Now()
	looks := 0
	for time.Since(began) < time.Second {
		p.kick()
		select {
		case <-p.due():
			p.done()
			looks++
		case <-time.After(5 * time.Millisecond):
		}
	}
	if looks < 4 || looks > 11 {
		t.Errorf("%d looks in a second of kicks: want about ten", looks)
	}
	p.done()
	at := time.Now()
	p.kick()
	p.kick()
	<-p.due()
	p.done()
	if took := time.Since(at); took < quiet {
		t.Errorf("due %v after another look: want %v at least", took, quiet)
	}
	select {
	case <-p.due():
		t.Error("due again without a kick")
	case <-time.After(3 * quiet):
	}
	p.last = time.Now().Add(-rest)
	p.kick()
	if first := p.first; !p.prompt || first.IsZero() {
		t.Error("a kick after a rest is not prompt")
	}
	p.kick()
	<-p.due()
	if p.done(); p.prompt {
		t.Error("what follows a look is prompt, too")
	}
}

// TCP is clamped where a container's link is larger than a tunnel, and only there.
func TestClampedWhereNeeded(t *testing.T) {
	t.Parallel()
	s := snapshotOf(t, twoNodes)
	self := &cluster.Node{Name: "a", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	for tallest, want := range map[int]bool{0: false, 1450: false, 1451: true, 9000: true} {
		h := host()
		h.Tallest = tallest
		if got := strings.Contains(text(Compile(s, self, h)), "maxseg"); got != want {
			t.Errorf("links of %d bytes: clamped %v, want %v", tallest, got, want)
		}
	}
	h := heightsOf([]*kernel.LinkInfo{{Index: 1, MTU: 65536}, {Index: 2, MTU: 1450, Group: kernel.LinkGroup, Alias: "fairlead pods c eth0"}})
	if h.tallest() != 1450 || h.note(&kernel.LinkInfo{Index: 3, MTU: 9000}, false) {
		t.Errorf("links of others count: %v", h)
	}
	tall := &kernel.LinkInfo{Index: 3, MTU: 1500, Group: kernel.LinkGroup, Alias: "fairlead pods d eth0"}
	if !h.note(tall, false) || h.tallest() != 1500 || !h.note(tall, true) || h.tallest() != 1450 {
		t.Errorf("a link that came and went: %v", h)
	}
}
