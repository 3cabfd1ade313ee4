package scenario

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/enforce/enforcetest"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestPluginPages runs every configuration on the pages of docs/plugins unchanged, with ADD, CHECK and DEL, if all its
// plugins are Fairlead's.
func TestPluginPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/plugins/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	known := map[string]bool{}
	for _, p := range plugintest.Plugins() {
		known[p.Name] = true
		if !slices.Contains(pages, "../../docs/plugins/"+p.Name+".md") {
			t.Errorf("%s has no page in docs/plugins", p.Name)
		}
	}
	ran := 0
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(raw), "```json\n")[1:] {
			conf, _, _ := strings.Cut(block, "```")
			types := typesOf(conf)
			if !runnable(types, known) {
				continue
			}
			ran++
			t.Run(strings.TrimSuffix(filepath.Base(page), ".md")+"/"+string(rune('1'+i)), func(t *testing.T) {
				t.Parallel()
				runPage(t, conf, types)
			})
		}
	}
	if ran < 5 {
		t.Errorf("only %d configurations could be run", ran)
	}
}

// typesOf returns the plugins that a configuration names, or none if the text is not a configuration.
func typesOf(conf string) (types []string) {
	var c struct {
		Type    string
		IPAM    struct{ Type string }
		Plugins []struct{ Type string }
	}
	if json.Unmarshal([]byte(conf), &c) != nil {
		return nil
	}
	types = []string{c.Type, c.IPAM.Type}
	for _, p := range c.Plugins {
		types = append(types, p.Type)
	}
	return slices.DeleteFunc(types, func(s string) bool { return s == "" })
}

// lan creates the network that the page of dhcp assumes, with the other end of eth1 on it, and starts a daemon. It
// returns a prefix that runs commands with the daemon's socket at the default path.
func lan(t *testing.T) (wrap []string) {
	n := dhcptest.New(t, "lan0", "10.0.0.1/24", "fd00:7::1/64")
	kerneltest.Run(t, "ip", "link", "set", "far1", "master", "lan0", "up")
	n.Dnsmasq("--enable-ra", "--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h", "--dhcp-range=fd00:7::100,fd00:7::1ff,64,1h")
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	dhcptest.Daemon(t, filepath.Join(programs, plugintest.Daemon), socket, t.TempDir())
	return []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /run && mkdir /run/cni && ln -s "$0" /run/cni/dhcp.sock && exec "$@"`, socket}
}

// openVSwitch starts an Open vSwitch. It returns a prefix that runs commands with the switch's socket at the default
// path.
func openVSwitch(t *testing.T) (wrap []string) {
	return []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /run && mkdir /run/openvswitch && ln -s "$0" /run/openvswitch/db.sock && exec "$@"`,
		ovstest.New(t).Socket()}
}

// agent starts the address-allocation part of a node's agent, with a store that has the default network.
func agent(t *testing.T, m *machine) {
	s, err := store.File(filepath.Join(m.Dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, cluster.NetworkKey(cluster.DefaultNetwork), `{"subnets": [{"cidr": "10.10.0.0/16"}, {"cidr": "fd00:10::/112"}]}`)
	dir := local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run"))
	manager := address.NewManager(address.Options{Store: s, Node: "here", Dir: dir})
	l, err := address.Listen(dir.Socket())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = source.Follow(ctx, s, cluster.Followed(), manager) })
	all.Go(func() { _ = manager.Run(ctx) })
	all.Go(func() { _ = (&address.Server{Handlers: manager.Handlers()}).Serve(ctx, l) })
	t.Cleanup(func() { cancel(); all.Wait(); _ = s.Close() })
	kerneltest.Until(t, func() bool {
		n, err := dir.Read(cluster.DefaultNetwork)
		return err == nil && len(n.Subnets[1].Blocks) > 0
	})
}

// runnable reports whether all plugins of a configuration are Fairlead's.
func runnable(types []string, known map[string]bool) bool {
	return len(types) > 0 && !slices.ContainsFunc(types, func(s string) bool { return !known[s] })
}

// linkTypes returns the plugins that need a kernel link type of the same name.
func linkTypes() []string { return []string{"dummy", "ipvlan", "macvlan", "tap", "vlan", "vrf"} }

func runPage(t *testing.T, conf string, types []string) {
	for _, l := range linkTypes() {
		if slices.Contains(types, l) {
			kerneltest.Needs(t, l)
		}
	}
	m := newMachine(t)
	kerneltest.Run(t, "ip", "link", "add", "eth1", "up", "type", "veth", "peer", "name", "far1")
	kerneltest.Run(t, "ip", "addr", "add", "198.51.100.1/24", "dev", "eth1")
	kerneltest.Run(t, "ip", "link", "set", "far1", "up")
	kerneltest.Run(t, "ip", "route", "add", "default", "via", "198.51.100.2")
	if strings.Contains(conf, `"type": "dhcp"`) {
		m.wrap = lan(t)
	}
	if slices.Contains(types, "ovs") {
		m.wrap = openVSwitch(t)
	}
	if slices.Contains(types, "fairlead-ipam") || slices.Contains(types, "whereabouts") {
		agent(t, m)
	}
	if slices.Contains(types, "fairlead-policy") {
		enforcetest.Start(t, local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run")), "policy: all\nfor: '*'\nin: []\n")
	}
	env := `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80}],"ips":["10.10.0.9/24"]}`
	if slices.Contains(types, "fairlead-ipam") {
		env = "CAP_ARGS="
	}
	for _, verb := range []string{"add", "check", "del"} {
		if verb == "check" && strings.Contains(conf, `"cniVersion": "0.1.0"`) {
			continue // CHECK exists since 0.4.0
		}
		if out, err := m.cni(verb, conf, "a", "", "", env); err != nil {
			t.Fatalf("%s: %s", verb, out)
		}
	}
	kerneltest.Run(t, "ip", "link", "show", "eth1")
}
