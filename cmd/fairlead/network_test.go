package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/store/storetest"
)

// What network commands say leads on: to the network that is missing, to who is in the
// way, to the peer that does not say so too.
func TestNetworkWords(t *testing.T) {
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
	want(2, `--subnet is "10.0.0.0/33"`, "create", "blue", "--isolated", "--subnet", "10.0.0.0/33")
	want(1, "it is its own peer", "create", "blue", "--isolated", "--subnet", "10.0.0.0/16", "--peer", "blue")
	want(0, "created blue", "create", "blue", "--isolated", "--subnet", "10.0.0.0/16", "--peer", "red", "--peer", "gone")
	want(0, "created red", "create", "red", "--isolated", "--subnet", "10.1.0.0/16")
	want(0, "blue     10.0.0.0/16                   vxlan     0       yes       red (does not name blue), gone (does not exist)\n", "list")
	want(0, "set red", "set", "red", set("isolated: true\nsubnets: [{cidr: 10.1.0.0/16}]\npeers: [blue]\n"))
	want(0, "yes       red, gone (does not exist)\n", "list")

	storetest.Put(t, h.s, "blocks/blue/10.0.0.64-26", `{"node": "here", "subnet": "10.0.0.0/16"}`)
	storetest.Put(t, h.s, "endpoints/here/c1/eth0", `{"network": "blue", "ips": ["10.0.0.66"]}`)
	storetest.Put(t, h.s, "addresses/default/10.250.0.4", `{"owner": "ns/x", "fixed": true}`)
	want(1, "network blue is in use\nnode here has block 10.0.0.64/26, and 1 containers: delete these, then type: fairlead ipam release 10.0.0.64/26 --network blue --yes\n", "delete", "blue")
	want(1, "10.250.0.4 is ns/x's: type: fairlead ipam release 10.250.0.4 --yes\n", "delete", "default")
	want(1, `node here has the block 10.244.0.16/28 of subnet 10.244.0.0/24, which would be no more: keep the subnet for now, with all of it excluded (exclude: [10.244.0.0/24]), delete the containers that are on it, and then type: fairlead ipam release 10.244.0.16/28 --yes`, "set", "default", set("subnets: [{cidr: 10.244.0.0/16}]"))
	want(1, `10.250.0.4, which is ns/x's, would be of no subnet`, "set", "default", set("subnets: [{cidr: 10.244.0.0/24, block: 28}]"))
	want(0, "deleted red", "delete", "red")
}

// A cluster without a network says how it gets one.
func TestNoNetworks(t *testing.T) {
	t.Parallel()
	h := &ipamHost{t: t, dir: t.TempDir()}
	code, out, errs := h.fairlead("network", "list")
	if code != 0 || !strings.Contains(out, "fairlead network create default --subnet 10.244.0.0/16 --nat") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = h.fairlead("network", "create", "default", "--subnet", "10.244.0.0/16", "--nat")
	if code != 0 || out != "created default\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
