package clustermap

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
)

func snapshot(nodes int) *cluster.Snapshot {
	s := cluster.NewSnapshot()
	set := func(key string, v string) { s.Set(key, []byte(v)) }
	set("networks/default", `{"subnets": [{"cidr": "10.244.0.0/16"}], "backends": [{"type": "host-gw", "when": "direct"}, {"type": "vxlan"}]}`)
	set("networks/blue", `{"subnets": [{"cidr": "10.0.0.0/24"}], "isolated": true, "vni": 4097}`)
	for i := range nodes {
		name := fmt.Sprintf("host<%d>", i)
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i % 2), byte(i + 1)}), 24)
		// The name contains markup. The store would reject it.
		s.Nodes[name] = &cluster.Node{Name: name, ID: "x", Addresses: []netip.Prefix{address}}
		if i != 1 {
			set("alive/"+name, `{}`)
		}
		set(fmt.Sprintf("blocks/default/10.244.%d.0-26", i), fmt.Sprintf(`{"node": %q, "subnet": "10.244.0.0/16"}`, name))
		for j := range i * 5 {
			set(fmt.Sprintf("endpoints/%s/c%02d/eth0", name, j), fmt.Sprintf(`{"network": "default", "ips": ["10.244.%d.%d"]}`, i, j+2))
		}
		set("endpoints/"+name+"/b/eth0", `{"network": "blue", "ips": ["10.0.0.7"]}`)
	}
	return s
}

var update = flag.Bool("update", os.Getenv("UPDATE") != "", "write the golden files")

func TestMap(t *testing.T) {
	t.Parallel()
	m := Of(snapshot(4))
	got, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/map.golden"
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: the map is\n%s", err, got)
	}
	if m.Nodes[1].State != Away || m.Pairs["host-gw"] != 1 || m.Pairs["vxlan"] != 2 || m.Pairs["vxlan (away)"] != 2 {
		t.Errorf("pairs: %v", m.Pairs)
	}
}

// TestSVG checks for clusters of different sizes that the SVG is well-formed, names every host, and is the same each
// time.
func TestSVG(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 16, 40} {
		m := Of(snapshot(n))
		var a, b bytes.Buffer
		if err := errors.Join(m.SVG(&a), m.SVG(&b)); err != nil {
			t.Fatal(err)
		}
		if a.String() != b.String() {
			t.Errorf("%d nodes: drawn twice it is not the same", n)
		}
		drawn := a.String()
		for d := xml.NewDecoder(&a); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%d nodes: %v", n, err)
			}
		}
		if more := strings.Contains(drawn, "and 4 more"); more != (n > 3) { // node 3 has 16 containers
			t.Errorf("%d nodes: the picture counts the containers that it does not show: %v", n, more)
		}
		for i := range n {
			if !strings.Contains(drawn, fmt.Sprintf("host&lt;%d&gt;", i)) {
				t.Errorf("%d nodes: host %d is not drawn", n, i)
			}
		}
		if at, _, _ := m.places(); n <= linesUpTo && !apart(at) {
			t.Errorf("%d nodes: a line between two of them cannot be seen: %v", n, at)
		}
		lines := n * (n - 1) / 2
		if n > linesUpTo {
			lines = 0
		}
		if got := strings.Count(drawn, "<line "); got != lines {
			t.Errorf("%d nodes: %d lines, want %d", n, got, lines)
		}
		if got := strings.Count(drawn, ">vxlan</text>") + strings.Count(drawn, ">host-gw</text>"); got < lines {
			t.Errorf("%d nodes: %d lines have a label, want %d", n, got, lines)
		}
	}
}

// TestSVGOfOddNames checks that the SVG is well-formed whatever names the store has, and that all networks fit into it.
func TestSVGOfOddNames(t *testing.T) {
	t.Parallel()
	s := snapshot(2)
	for i, name := range []string{"a\x01b", "\x1b[31m", "a\xffb", "a\ufffeb", "a]]>\"'&b", strings.Repeat("x", 1000)} {
		key := fmt.Sprintf("endpoints/host<0>/a%d/eth0", i)
		s.Put(key, &cluster.Endpoint{Node: "host<0>", Container: fmt.Sprint("a", i), IfName: "eth0", Pod: name}, nil)
	}
	for i := range 60 {
		s.Set(fmt.Sprint("networks/n", i), fmt.Appendf(nil, `{"isolated": true, "subnets": [{"cidr": "10.%d.0.0/16"}]}`, i))
	}
	var drawn bytes.Buffer
	if err := Of(s).SVG(&drawn); err != nil {
		t.Fatal(err)
	}
	height, lowest := 0.0, 0.0
	for d := xml.NewDecoder(&drawn); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		e, _ := token.(xml.StartElement)
		for _, a := range e.Attr {
			n, _ := strconv.ParseFloat(a.Value, 64)
			switch {
			case e.Name.Local == "svg" && a.Name.Local == "height":
				height = n
			case a.Name.Local == "y":
				lowest = max(lowest, n)
			}
		}
	}
	if lowest >= height {
		t.Errorf("something is drawn at %v, and the picture ends at %v", lowest, height)
	}
}

// TestMapOfLargeCluster checks that the map of a large cluster counts all pairs of nodes, and lists few.
func TestMapOfLargeCluster(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.0.0.0/8"}]}`))
	const nodes, away = 1000, 3
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 16)
		if i == nodes-1 {
			address = netip.MustParsePrefix("2001:db8::1/64") // nothing connects it
		}
		s.Nodes[name] = &cluster.Node{Name: name, Addresses: []netip.Prefix{address}}
		s.Alive[name] = i >= away
	}
	m := Of(s)
	pairs := 0
	for _, count := range m.Pairs {
		pairs += count
	}
	if pairs != nodes*(nodes-1)/2 {
		t.Errorf("%d pairs are counted", pairs)
	}
	if want := away*(nodes-away) + away*(away-1)/2 + nodes - 1 - away; len(m.Tunnels) != want { // away, or not connected
		t.Errorf("%d pairs are listed, want %d", len(m.Tunnels), want)
	}
	if len(m.Pairs) > 3 {
		t.Errorf("%d lines about pairs: %.300v", len(m.Pairs), m.Pairs)
	}
}
