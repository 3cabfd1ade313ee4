package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// explains runs "policy explain" and compares its exit code and a part of its output.
func (h *policyHost) explains(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	got, out, errs := h.fairlead(append([]string{"policy", "explain"}, args...)...)
	if got != code || !strings.Contains(out+errs, words) {
		t.Errorf("%q: exit code %d, want %d with %q:\n%s%s", args, got, code, words, out, errs)
	}
}

// TestExplainKernel asks the kernel of a node: with equal rules, on another node, and after damages.
func TestExplainKernel(t *testing.T) {
	t.Parallel()
	h := newPolicyHost(t)
	kernelOnly := func(code int, words string, args ...string) {
		t.Helper()
		h.explains(t, code, words, append([]string{"--kernel-only"}, args...)...)
	}
	both := func(code int, words string, args ...string) {
		t.Helper()
		h.explains(t, code, words, append([]string{"--kernel", "-f", h.file}, args...)...)
	}
	kernelOnly(1, "network policy is not in force on this host", "10.0.0.1", "10.0.0.2", "5432")
	table := h.enforce(t)

	kernelOnly(0, "10.0.0.1 -> 10.0.0.2, by this node's kernel: allowed\n  egress of the source:       no policy selects 10.0.0.1\n  ingress of the destination: NetworkPolicy shop/db ingress[0]\n", "10.0.0.1", "10.0.0.2", "5432")
	kernelOnly(4, "dropped\n  egress of the source:       no policy selects fd00::1\n  ingress of the destination: no NetworkPolicy allows it: shop/db\n", "fd00::1", "fd00::2", "5432/udp")
	kernelOnly(4, "egress of the source:       198.51.100.1 is not a pod of this node", "198.51.100.1", "10.0.0.2", "5432")
	kernelOnly(1, "neither SOURCE nor DESTINATION is a pod of this node", "198.51.100.1", "198.51.100.2", "5432")
	kernelOnly(2, `"shop/web" is not an address`, "shop/web", "10.0.0.2", "5432")
	kernelOnly(4, `"local": true`, "10.0.0.1", "10.0.0.2", "80", "-o", "json")
	both(2, "--kernel-only excludes", "--kernel-only", "10.0.0.1", "10.0.0.2", "80")

	both(0, "10.0.0.1 -> 10.0.0.2, by this node's kernel: allowed\n", "shop/web", "shop/db", "5432")
	both(0, "the kernel agrees with the policies\n", "shop/web", "shop/db", "5432")
	both(4, "the kernel agrees with the policies\n", "shop/web", "shop/db", "5432/udp")
	both(0, "the kernel agrees with the policies\n", "shop/db", "shop/db", "5432/udp")

	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo") // the address of the node n1
	both(0, "a node always reaches its pods", "192.0.2.1", "shop/db", "80")
	both(4, "the kernel agrees with the policies\n", "198.51.100.1", "shop/db", "80")
	kernelOnly(0, "a node always reaches its pods", "192.0.2.1", "10.0.0.2", "80")

	for _, c := range []struct {
		damage string
		code   int
		words  string
		port   string
	}{
		{"flush map inet fairlead-policy ingress4", 1, "DIFFERENT ingress: the kernel's rules decide allowed, the policies dropped by no NetworkPolicy allows it: shop/db\n", "80"},
		{"flush chain inet fairlead-policy " + chainOf(table.Sets["ingress4"].Elements["10.0.0.2"]), 1, "DIFFERENT ingress: the kernel's rules decide allowed, the policies allowed by NetworkPolicy shop/db ingress[0]\n", "5432"},
		{"flush chain inet fairlead-policy egress", 0, "the kernel agrees", "5432"}, // nothing selects the source
		{"delete element inet fairlead-policy self4 { 10.0.0.2 . 10.0.0.2 }", 1, "DIFFERENT ingress: the kernel does not know shop/db\n", "80"},
		{"add element inet fairlead-policy self4 { 10.0.0.9 . 10.0.0.9 }", 0, "the kernel agrees", "5432"},
		{"insert rule inet fairlead-policy ingress ip saddr 10.0.0.0/8 accept", 1, "this program does not know its meaning", "80"},
		{"add chain inet fairlead-policy more { type filter hook forward priority -20 ; }", 1, "has the chain more with the hook", "80"},
		{"flush chain inet fairlead-policy ingress ; delete chain inet fairlead-policy ingress", 1, "chain ingress does not exist", "80"},
		{"add table inet fairlead-policy { flags dormant ; }", 1, "dormant", "80"},
	} {
		kerneltest.Run(t, "nft", c.damage)
		both(c.code, c.words, "10.0.0.1", "10.0.0.2", c.port)
		_, err := h.Table.Sync(t.Context(), table)
		must(t, err)
	}
	kerneltest.Run(t, "nft", "add element inet fairlead-policy self4 { 10.0.0.9 . 10.0.0.9 }")
	both(1, "DIFFERENT egress: the kernel has rules for 10.0.0.9, which is not a pod\n", "10.0.0.9", "10.0.0.2", "5432")

	// A rule about pods, and an address of the pod network that no known pod has.
	deny := filepath.Join(t.TempDir(), "deny.yaml")
	must(t, os.WriteFile(deny, []byte(denyPods), 0o600))
	w, _, err := manifest.Load(nil, h.file, deny)
	must(t, err)
	w.PodNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/25"), netip.MustParsePrefix("10.0.0.128/26")}
	_, err = h.Table.Sync(t.Context(), policy.Compile(w, "n1"))
	must(t, err)
	const unknown = "ClusterNetworkPolicy deny ingress[0]: unknown pod\n"
	both(4, "10.0.0.77 -> 10.0.0.1: dropped\n  egress of the source:       10.0.0.77 is not a pod: policy does not apply\n  ingress of the destination: "+unknown, "-f", deny, "10.0.0.77", "shop/web", "80")
	both(4, "the kernel agrees with the policies\n", "-f", deny, "10.0.0.180", "shop/web", "80")
	both(0, "the kernel agrees with the policies\n", "-f", deny, "10.0.0.200", "shop/web", "80")

	// The rules of another node.
	w, _, err = manifest.Load(nil, h.file)
	must(t, err)
	i := slices.IndexFunc(w.Endpoints, func(e *policy.Endpoint) bool { return e.Name == "db" })
	w.Endpoints[i].Node = "n2"
	_, err = h.Table.Sync(t.Context(), policy.Compile(w, "n2"))
	must(t, err)
	both(1, "DIFFERENT egress: the kernel does not know shop/web\n", "shop/web", "shop/db", "5432")
}

// TestExplainLinkLocal checks that the name of a pod stands for its link-local addresses only if it has no others.
func TestExplainLinkLocal(t *testing.T) {
	t.Parallel()
	pod := func(name string, addrs ...string) *policy.Endpoint {
		e := &policy.Endpoint{Namespace: "shop", Name: name}
		for _, a := range addrs {
			e.Addresses = append(e.Addresses, netip.MustParseAddr(a))
		}
		return e
	}
	w := &policy.World{Endpoints: []*policy.Endpoint{pod("web", "10.0.0.1", "fe80::1"), pod("db", "10.0.0.2", "fe80::2"), pod("new", "fe80::3")}}
	for _, c := range []struct{ src, dst, want string }{
		{"shop/web", "shop/db", "10.0.0.1 10.0.0.2"}, {"fe80::1", "fe80::2", "fe80::1 fe80::2"}, {"fe80::1", "shop/new", "fe80::1 fe80::3"},
	} {
		list, err := packets(w, c.src, c.dst, policy.Packet{})
		if err != nil || len(list) != 1 || list[0].Src.String()+" "+list[0].Dst.String() != c.want {
			t.Errorf("%s to %s: %v, %v, want %s", c.src, c.dst, list, err, c.want)
		}
	}
}

// chainOf returns the chain that a verdict goes to.
func chainOf(verdict string) string { return strings.TrimPrefix(verdict, "goto ") }

// denyPods forbids connections of the pods of a team to any pods.
const denyPods = `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: deny},
  spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: b}}}]}]}}
`
