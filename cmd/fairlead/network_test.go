package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

// The messages of network commands name what is missing or in the way, and the next command.
func TestNetworkMessages(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	want := func(code int, words string, args ...string) {
		t.Helper()
		got, out, errs := h.fairlead(append([]string{"network"}, args...)...)
		if got != code || !strings.Contains(out+errs, words) {
			t.Errorf("network %s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, words, out, errs)
		}
	}
	file := filepath.Join(t.TempDir(), "n.yaml")
	set := func(text string) string { must(t, os.WriteFile(file, []byte(text), 0o600)); return file }
	want(1, "there is no network blue; there are: default\n", "show", "blue")
	want(2, "--subnet 10.0.0.0/33: want a range like 10.0.0.0/16", "create", "blue", "--isolated", "--subnet", "10.0.0.0/33")
	want(1, "it is its own peer", "create", "blue", "--isolated", "--subnet", "10.0.0.0/16", "--peer", "blue")
	want(0, "created blue", "create", "blue", "--isolated", "--subnet", "10.0.0.0/16", "--peer", "red", "--peer", "gone")
	want(0, "created red", "create", "red", "--isolated", "--subnet", "10.1.0.0/16")
	want(0, "blue     10.0.0.0/16                   vxlan     0       yes       red (does not name blue), gone (does not exist)\n", "list")
	want(0, "changed red", "set", "red", set("isolated: true\nsubnets: [{cidr: 10.1.0.0/16}]\npeers: [blue]\n"))
	want(0, "yes       red, gone (does not exist)\n", "list")

	storetest.Put(t, h.s, "blocks/blue/10.0.0.64-26", `{"node": "here", "subnet": "10.0.0.0/16"}`)
	storetest.Put(t, h.s, "endpoints/here/c1/eth0", `{"network": "blue", "ips": ["10.0.0.66"]}`)
	storetest.Put(t, h.s, "addresses/default/10.250.0.4", `{"owner": "ns/x", "fixed": true}`)
	want(1, "network blue is in use\nnode here has block 10.0.0.64/26 and 1 containers: delete the containers, then type: fairlead ipam release 10.0.0.64/26 --network blue\n", "delete", "blue")
	want(1, "ns/x has the address 10.250.0.4: type: fairlead ipam release 10.250.0.4\n", "delete", "default")
	want(1, `node here has the block 10.244.0.16/28 of subnet 10.244.0.0/24, which the new configuration lacks: keep the subnet with all of it excluded (exclude: [10.244.0.0/24]), delete the containers on it, and then type: fairlead ipam release 10.244.0.16/28`, "set", "default", set("subnets: [{cidr: 10.244.0.0/16}]"))
	want(1, `the address 10.250.0.4 of ns/x would belong to no subnet with "assign: cluster"`, "set", "default", set("subnets: [{cidr: 10.244.0.0/24, block: 28}]"))
	want(0, "would delete red\n", "delete", "red", "--dry-run")
	want(0, "deleted red", "delete", "red")
	want(1, "there is no network red; there are: blue, default", "delete", "red", "--dry-run")
}

// TestNetworkApplySeveral verifies that a file with several networks is applied completely or not at all, and that
// --dry-run says so.
func TestNetworkApplySeveral(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	storetest.Put(t, h.s, "networks/old", `{"subnets": [{"cidr": "10.1.0.0/16"}]}`)
	file := filepath.Join(t.TempDir(), "n.yaml")
	apply := func(code int, words, text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o600))
		for _, more := range [][]string{{"--dry-run"}, nil} {
			got, out, errs := h.fairlead(append([]string{"network", "apply", "-f", file}, more...)...)
			if got != code || more != nil && !strings.Contains(out+errs, words) {
				t.Errorf("%v: exit code %d, want %d with %q:\n%s%s", more, got, code, words, out, errs)
			}
		}
	}
	apply(1, "network b: its subnet 10.2.0.0/24 overlaps with 10.2.0.0/16 of network a", "name: a\nsubnets: [{cidr: 10.2.0.0/16}]\n---\nname: b\nsubnets: [{cidr: 10.2.0.0/24}]\n")
	if code, out, errs := h.fairlead("network", "list"); code != 0 || strings.Contains(out, "10.2.0.0/16") {
		t.Errorf("after an error, exit code %d:\n%s%s", code, out, errs)
	}
	apply(0, "would change old\nwould create a\n", "name: old\nsubnets: [{cidr: 10.3.0.0/16}]\n---\nname: a\nsubnets: [{cidr: 10.1.0.0/16}]\n")
}

// Apply sets everything that a network has, and what show prints can be applied.
func TestNetworkApply(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	file := filepath.Join(t.TempDir(), "n.yaml")
	apply := func(code int, text, want string, args ...string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o600))
		got, out, errs := h.fairlead(append([]string{"network", "apply", "-f", file}, args...)...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s%s", text, got, code, want, out, errs)
		}
	}
	const green = "name: green\nisolated: true\nsubnets:\n    - cidr: 10.5.0.0/16\n      block: 24\n      exclude:\n        - 10.5.0.0/24\nbackends:\n    - type: vxlan\n      port: 4789\nmtu: 1400\nnat: true\n"
	apply(0, green, "would create green\n", "--dry-run")
	apply(0, green, "created green\n")
	apply(0, green, "unchanged green\n")
	if code, out, errs := h.fairlead("network", "show", "green"); code != 0 || out != green {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	apply(0, strings.Replace(green, "4789", "4790", 1), "would change green\n", "--dry-run")
	apply(0, strings.Replace(green, "4789", "4790", 1), "changed green\n")
	if code, out, _ := h.fairlead("network", "show", "green", "-o", "json"); code != 0 || !strings.Contains(out, `"port": 4790`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	apply(0, green+"---\n"+strings.ReplaceAll(green, "green", "lime"), "changed green\ncreated lime\n")
	apply(0, "subnets: [{cidr: 10.6.0.0/16}]\nisolated: true", "created olive\n", "olive")
	apply(exitInvalid, "subnets: [{cidr: 10.6.0.0/16}]", `n.yaml:1:1: the network has no name`)
	apply(exitInvalid, "name: a\nsubnets: [{cidr: 10.6.0.0/16}]", `n.yaml:1:7: name is "a": the command line says "b"`, "b")
	apply(exitInvalid, strings.Replace(green, "type: vxlan", "type: vxlann", 1), "n.yaml:9:13: backends[0].type = vxlann: want one of host-gw, vxlan, wireguard, ipip, bgp")
	apply(exitInvalid, strings.Replace(green, "10.5.0.0/16", "10.5.0.1/16", 1), "n.yaml:4:13: network green: subnets[0].cidr is 10.5.0.1/16: want its first address")
	apply(exitInvalid, strings.Replace(green, "isolated: true", "isolated: false", 1), "n.yaml:9:5: network green: backends is set, but hosts do not connect the containers of this network")
	apply(1, "name: olive\nsubnets: [{cidr: 10.6.0.0/16}]", "network olive: isolated cannot be changed")
}

// Create has flags for everything that a network commonly has.
func TestNetworkCreateFlags(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	want := func(code int, words string, args ...string) {
		t.Helper()
		got, out, errs := h.fairlead(append([]string{"network", "create"}, args...)...)
		if got != code || !strings.Contains(out+errs, words) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, words, out, errs)
		}
	}
	all := strings.Fields("blue --isolated --subnet 10.7.0.0/16 --subnet fd07::/48 --block-size 24 --block-size 120 --exclude 10.7.0.0/24 --exclude fd07::1-fd07::9 --backend vxlan,port=4789 --mtu 1400 --nat --vni 77")
	want(0, "would create blue\n", append(all, "--dry-run")...)
	want(0, "created blue\n", all...)
	_, out, _ := h.fairlead("network", "show", "blue", "--json")
	for _, part := range []string{`"block": 24`, `"block": 120`, `"10.7.0.0/24"`, `"fd07::1-fd07::9"`, `"port": 4789`, `"mtu": 1400`, `"nat": true`, `"vni": 77`} {
		if !strings.Contains(out, part) {
			t.Errorf("no %s in %s", part, out)
		}
	}
	want(1, "network blue exists\nTo change it, type: fairlead network apply -f FILE", all...)
	red := []string{"red", "--isolated", "--subnet", "10.8.0.0/16"}
	want(2, "--subnet is 10.9.1.0/16: want its first address", "x", "--subnet", "10.9.1.0/16")
	want(2, "--block-size is 8: want", append(red, "--block-size", "8")...)
	want(2, "--mtu is 10: want", append(red, "--mtu", "10")...)
	want(2, "--vni is 99999999: want", append(red, "--vni", "99999999")...)
	want(2, `the name is "Red x": want`, "Red x", "--subnet", "10.9.0.0/16")
	want(2, "--mtu abc: want a whole number\n", append(red, "--mtu", "abc")...)
	want(2, "--exclude 10.9.0.1: it is in no --subnet", append(red, "--exclude", "10.9.0.1")...)
	want(2, "--block-size 120: no subnet of that family", append(red, "--block-size", "120")...)
	want(2, "--backend vxlann: type = vxlann: want one of host-gw, vxlan, wireguard, ipip, bgp", append(red, "--backend", "vxlann")...)
	want(2, `--backend vxlan,prt=1: prt: there is no such key: did you mean "port"?`, append(red, "--backend", "vxlan,prt=1")...)
	want(2, `--backend vxlan,port=x: port = x: want a number`, append(red, "--backend", "vxlan,port=x")...)
	want(2, `--backend vxlan,port: want KEY=VALUE, found "port"`, append(red, "--backend", "vxlan,port")...)
}

// Without a network, list prints how to create one.
func TestNoNetworks(t *testing.T) {
	t.Parallel()
	h := &ipamHost{t: t, dir: t.TempDir()}
	empty := filepath.Join(t.TempDir(), "store")
	s, err := store.File(empty)
	must(t, err)
	must(t, s.Close())
	code, out, errs := h.fairlead("network", "list", "--store-file", empty)
	if code != 0 || !strings.Contains(out, "fairlead network create default --subnet 10.244.0.0/16 --nat") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if code, out, errs := h.fairlead("ipam", "show", "--store-file", empty); code != 0 || !strings.HasPrefix(out, "No networks.") {
		t.Errorf("ipam show: exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = h.fairlead("network", "create", "default", "--subnet", "10.244.0.0/16", "--nat", "--dry-run")
	if files, err := os.ReadDir(h.dir); code != 0 || out != "would create default\n" || err != nil || len(files) > 0 {
		t.Errorf("--dry-run: exit code %d, created %v: %s%s", code, files, out, errs)
	}
	code, out, errs = h.fairlead("network", "create", "default", "--subnet", "10.244.0.0/16", "--nat")
	if code != 0 || out != "created default\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
