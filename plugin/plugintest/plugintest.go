// Package plugintest evaluates a declarative plugin without a kernel.
package plugintest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Facts is a host and a container with the listed links.
type Facts [2]map[string]*kernel.LinkInfo

// Link returns a listed link.
func (f Facts) Link(s kernel.Side, name string) (*kernel.LinkInfo, error) {
	if l, ok := f[s][name]; ok {
		return l, nil
	}
	return nil, fmt.Errorf("link %s: %w", name, fs.ErrNotExist)
}

// Links returns the listed links, sorted by name.
func (f Facts) Links(s kernel.Side) (out []*kernel.LinkInfo, err error) {
	for _, name := range slices.Sorted(maps.Keys(f[s])) {
		out = append(out, f[s][name])
	}
	return out, nil
}

// Sysctl returns "7" for every key.
func (f Facts) Sysctl(kernel.Side, string) (string, error) { return "7", nil }

// Addrs returns the addresses of dev0: static ones, one from DHCP, one from a router
// advertisement, and its link-local one.
func (f Facts) Addrs(_ kernel.Side, l *kernel.LinkInfo) ([]kernel.AddrInfo, error) {
	if l.Name != "dev0" {
		return nil, nil
	}
	p := netip.MustParsePrefix
	return []kernel.AddrInfo{
		{Index: l.Index, Prefix: p("192.0.2.10/24"), Permanent: true},
		{Index: l.Index, Prefix: p("198.51.100.10/24")},
		{Index: l.Index, Prefix: p("2001:db8::10/64"), Permanent: true},
		{Index: l.Index, Prefix: p("2001:db8:1::10/64")},
		{Index: l.Index, Prefix: p("fe80::10/64"), Scope: kernel.ScopeLink, Permanent: true},
	}, nil
}

// Routes returns the routes that the kernel creates for 10.1.0.2/24 and fd01::2/64 on the container's eth0, a default
// route, a route through two gateways, and a third-party route in table 100. On the host, dev0 has static routes and
// routes of the kernel, DHCP and a router.
func (f Facts) Routes(s kernel.Side, family byte, _ int) (out []kernel.RouteInfo, err error) {
	if s == kernel.Host {
		return f.hostRoutes(family), nil
	}
	in := f[kernel.Container]["eth0"]
	if in == nil {
		return nil, nil
	}
	p := netip.MustParsePrefix
	all := map[byte][]kernel.RouteInfo{
		kernel.IPv4: {
			{Dst: p("0.0.0.0/0"), Via: netip.MustParseAddr("10.1.0.1"), Index: in.Index, Table: 254, Protocol: 3, Type: 1},
			{Dst: p("10.0.0.0/16"), Hops: []kernel.Hop{{Via: netip.MustParseAddr("10.1.0.1"), Weight: 1}, {Via: netip.MustParseAddr("10.1.0.3"), Weight: 1}}, Index: in.Index, Table: 254, Protocol: 4, Type: 1},
			{Dst: p("10.1.0.0/24"), Src: netip.MustParseAddr("10.1.0.2"), Index: in.Index, Table: 254, Protocol: 2, Type: 1, Scope: 253},
			{Dst: p("10.1.0.2/32"), Index: in.Index, Table: 255, Protocol: 2, Type: 2, Scope: 254},
			{Dst: p("192.0.2.0/24"), Index: in.Index + 1, Table: 100, Type: 1},
		},
		kernel.IPv6: {
			{Dst: p("fd01::/64"), Index: in.Index, Table: 254, Protocol: 2, Type: 1, Metric: 256},
			{Dst: p("fe80::/64"), Index: in.Index, Table: 254, Protocol: 2, Type: 1, Metric: 256},
			{Dst: p("ff00::/8"), Index: in.Index, Table: 255, Protocol: 2, Type: 5, Metric: 256},
		},
	}
	return all[family], nil
}

func (f Facts) hostRoutes(family byte) []kernel.RouteInfo {
	p, ip, dev0 := netip.MustParsePrefix, netip.MustParseAddr, f[kernel.Host]["dev0"]
	if dev0 == nil {
		return nil
	}
	all := map[byte][]kernel.RouteInfo{
		kernel.IPv4: {
			{Dst: p("0.0.0.0/0"), Via: ip("192.0.2.1"), Index: dev0.Index, Table: 254, Protocol: 16, Type: 1, Metric: 100, Src: ip("192.0.2.10")},
			{Dst: p("192.0.2.0/24"), Src: ip("192.0.2.10"), Index: dev0.Index, Table: 254, Protocol: 2, Type: 1, Scope: 253},
			{Dst: p("203.0.113.0/24"), Via: ip("192.0.2.7"), Index: dev0.Index, Table: 100, Protocol: 3, Type: 1, MTU: 1400},
			{Dst: p("203.0.113.9/32"), Index: dev0.Index, Table: 254, Protocol: 3, Type: 1, Scope: 253},
			{Dst: p("198.18.0.0/15"), Index: dev0.Index + 1, Table: 254, Protocol: 3, Type: 1, Scope: 253},
		},
		kernel.IPv6: {
			{Dst: p("::/0"), Via: ip("fe80::1"), Index: dev0.Index, Table: 254, Protocol: 9, Type: 1, Metric: 1024},
			{Dst: p("2001:db8:7::/48"), Via: ip("2001:db8::7"), Index: dev0.Index, Table: 254, Protocol: 3, Type: 1, Metric: 1024},
			{Dst: p("fe80::/64"), Index: dev0.Index, Table: 254, Protocol: 3, Type: 1, Metric: 256},
		},
	}
	return all[family]
}

// Rules returns the kernel's default rules. The host also has a rule that dev0's address in 192.0.2.0/24 uses table 100,
// and one that also depends on something else.
func (f Facts) Rules(s kernel.Side, family byte) ([]kernel.RuleInfo, error) {
	out := []kernel.RuleInfo{{Table: 255}, {Table: 254, Priority: 32766}, {Table: 253, Priority: 32767}}
	if s == kernel.Host && family == kernel.IPv4 {
		from := netip.MustParsePrefix("192.0.2.0/24")
		out = append(out, kernel.RuleInfo{From: from, Table: 100, Priority: 500}, kernel.RuleInfo{From: from, Table: 100, Priority: 501, Other: true})
	}
	return out, nil
}

// ForwardDropChains returns Docker's chain and an administrator's.
func (f Facts) ForwardDropChains(string) ([]kernel.ForwardDropChain, error) {
	return []kernel.ForwardDropChain{{Family: "ip", Table: "filter", Chain: "FORWARD"}, {Family: "inet", Table: "mine", Chain: "fwd"}}, nil
}

// Firewalld returns false.
func (f Facts) Firewalld() bool { return false }

// HostID returns "test".
func (f Facts) HostID() string { return "test" }

// Uplinks returns one link.
func (f Facts) Uplinks() ([]string, error) { return []string{"uplink0"}, nil }

// DefaultLink returns dev0.
func (f Facts) DefaultLink(kernel.Side) (string, error) { return "dev0", nil }

// OtherEnd finds none.
func (f Facts) OtherEnd(*kernel.LinkInfo) (*kernel.LinkInfo, error) { return nil, os.ErrNotExist }

// LinkTo finds no route.
func (f Facts) LinkTo(netip.Addr) (string, error) { return "", fs.ErrNotExist }

// ReadFile reads a file of this machine.
func (f Facts) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Readlink reads a link of this machine.
func (f Facts) Readlink(path string) (string, error) { return os.Readlink(path) }

// Glob lists files of this machine.
func (f Facts) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

// Host returns a host with a bridge and two devices, and a container with a bridge and a link. With chained, the
// container also has eth0, which earlier plugins of a list created.
func Host(chained bool) Facts {
	facts := Facts{kernel.Host: {
		"dev0": {Index: 9, Name: "dev0", MAC: "02:00:00:00:00:09", MTU: 1500, Up: true, Alias: "mine"},
		"cni7": {Index: 7, Name: "cni7", Kind: "bridge", MAC: "02:00:00:00:00:07", MTU: 1500, Up: true},
		"dev1": {Index: 8, Name: "dev1", MAC: "02:00:00:00:00:08", MTU: 1500},
	}, kernel.Container: {
		"br0": {Index: 4, Name: "br0", Kind: "bridge", MAC: "02:00:00:00:00:04", MTU: 1500, Up: true},
		"in0": {Index: 3, Name: "in0", MAC: "02:00:00:00:00:03", MTU: 1400, Up: true},
	}}
	if chained {
		facts[kernel.Host]["veth7"] = &kernel.LinkInfo{Index: 17, Name: "veth7", Kind: "veth", MTU: 1450, Master: 7, Peer: 2, Up: true}
		facts[kernel.Container]["eth0"] = &kernel.LinkInfo{Index: 2, Name: "eth0", Kind: "veth", MAC: "02:00:00:00:00:02", MTU: 1450, TxQLen: 1000, Peer: 17, Up: true}
	}
	return facts
}

// Try returns the objects for a container "c1" with interface eth0.
func Try(p plugin.Plugin, conf []byte, r *cni.Result) (kernel.Objects, error) {
	return p.State(conf, "c1", "eth0", "/run/netns/c1", Host(p.Chained), r)
}

// State returns the objects as text, one per line, followed by the result.
func State(t testing.TB, p plugin.Plugin, conf []byte, r *cni.Result) string {
	t.Helper()
	list, err := Try(p, conf, r)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	for _, o := range list {
		owned := ""
		if o.Shared() {
			owned = " (shared)"
		}
		fmt.Fprintf(&b, "%s: %s%s\n", o.Side(), o, owned)
	}
	for _, i := range r.Interfaces {
		fmt.Fprintf(&b, "interface %s %s %s\n", i.Name, i.Mac, i.Sandbox)
	}
	for _, ip := range r.IPs {
		fmt.Fprintf(&b, "ip %s gateway %s\n", ip.Address, ip.Gateway)
	}
	for _, rt := range r.Routes {
		fmt.Fprintf(&b, "route %s via %s\n", rt.Dst, rt.GW)
	}
	return b.String()
}

// Golden turns every configuration testdata/*.json into text and compares it with the .golden file next to it. The key
// testIPs holds the addresses from IPAM. With UPDATE in the environment it writes the .golden files.
func Golden(t *testing.T, plugins ...plugin.Plugin) {
	t.Helper()
	cases, others := Cases(t, "testdata/*.json", plugins...)
	if len(others) > 0 {
		t.Fatalf("%v: for other plugins", others)
	}
	for _, c := range cases {
		compare(t, strings.TrimSuffix(c.File, ".json")+".golden", State(t, c.Plugin, c.Conf, c.Result))
	}
}

// Case is a configuration of a plugin.
type Case struct {
	File   string
	Plugin plugin.Plugin
	Conf   []byte
	Result *cni.Result // from IPAM or, for a chained plugin, from the plugin before it
}

// Cases reads the configurations that match a pattern. The key testIPs holds the addresses from IPAM. others are the files
// for other plugins.
func Cases(t *testing.T, pattern string, plugins ...plugin.Plugin) (out []Case, others []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			Type string
			IPs  []netip.Prefix `json:"testIPs"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		i := slices.IndexFunc(plugins, func(p plugin.Plugin) bool { return p.Name == head.Type })
		if i < 0 {
			others = append(others, file)
			continue
		}
		r := Result(head.IPs...)
		if plugins[i].Chained {
			r.Interfaces = []cni.Interface{{Name: "cni7"}, {Name: "veth7"}, {Name: "eth0", Sandbox: "/run/netns/c1"}}
		}
		out = append(out, Case{file, plugins[i], raw, r})
	}
	return out, others
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", golden, err, got, want)
	}
}

// Result returns IPAM's result: addresses without a gateway.
func Result(ips ...netip.Prefix) *cni.Result {
	r := &cni.Result{}
	for _, ip := range ips {
		r.IPs = append(r.IPs, cni.IP{Address: ip})
	}
	return r
}

// Fuzz runs the plugins with arbitrary configurations, starting from testdata/*.json. A plugin must return an error, or
// objects that a record can hold.
func Fuzz(f *testing.F, plugins ...plugin.Plugin) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no configurations: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, conf []byte) {
		for _, p := range plugins {
			if err := checkRecordable(conf, p); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	})
}

func checkRecordable(conf []byte, p plugin.Plugin) error {
	ips := []netip.Prefix{netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd00::2/64")}
	list, err := Try(p, conf, Result(ips...))
	if err != nil {
		return nil // rejected
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("objects cannot be recorded: %w", err)
	}
	var back kernel.Objects
	if err := json.Unmarshal(raw, &back); err != nil || len(back) != len(list) {
		return fmt.Errorf("the record of %d objects reads as %d: %w", len(list), len(back), err)
	}
	return nil
}
