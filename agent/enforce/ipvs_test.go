package enforce

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestIPVS checks that policy applies to packets to a Service of IPVS whose pod is on the same node: those of new
// connections, and those of connections that exist when the policy is created. The node itself still reaches its pods.
func TestIPVS(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "IPVS")
	n := newCutNode(t)
	a, b, other := n.pod("a", 1), n.pod("b", 2), n.pod("c", 3)
	kerneltest.Run(t, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, "sysctl", "-qw", "net.ipv4.vs.conntrack=1") // as kube-proxy does
	const number = servicePorts + 80
	var services []netip.AddrPort
	for f, vip := range []string{"10.96.0.1", "fd96::1"} {
		kerneltest.Run(t, "ip", "addr", "add", vip, "dev", "lo")
		service := netip.AddrPortFrom(netip.MustParseAddr(vip), number)
		services = append(services, service)
		kerneltest.Run(t, "ipvsadm", "-A", "-t", service.String(), "-s", "rr")
		kerneltest.Run(t, "ipvsadm", "-a", "-t", service.String(), "-r", netip.AddrPortFrom(b.addrs[f], 80).String(), "-m")
	}
	var before []*conn
	for _, service := range services {
		before = append(before, a.connect(b, service))
	}
	for _, addr := range b.addrs {
		b.listen("TCP", netip.AddrPortFrom(addr, 80))
	}
	reaches := func(what string, dial func(to netip.AddrPort) error, want bool) {
		t.Helper()
		for _, service := range services {
			if err := dial(service); (err == nil) != want {
				t.Errorf("%s: %s: %v, want an answer: %v", what, service, err, want)
			}
		}
	}
	from := func(p *cutPod, limit time.Duration) func(netip.AddrPort) error {
		return func(to netip.AddrPort) error {
			c, err := p.dial("TCP", to, limit)
			if err == nil {
				c.Close()
			}
			return err
		}
	}
	itself := func(to netip.AddrPort) error {
		c, err := net.DialTimeout("tcp", to.String(), kerneltest.Slow(10*time.Second))
		if err == nil {
			c.Close()
		}
		return err
	}
	const lost = 500 * time.Millisecond
	answer := kerneltest.Slow(10 * time.Second)
	for name, spec := range map[string]string{"no ingress": noIngress, "no egress": noEgress} {
		n.policy("closed", spec)
		kerneltest.Until(t, func() bool { return n.cutNow() >= len(before) }) // connections that were closed count, too
		for _, c := range before {
			send(t, c.client)
			c.silent(c.server)
		}
		reaches(name, from(a, lost), false)
		limit := lost
		if spec == noEgress { // it selects only a
			limit = answer
		}
		reaches(name+", another pod", from(other, limit), spec == noEgress)
		reaches(name+", the node", itself, true)
		n.deletePolicy("closed")
		n.cuts(0)
		for _, c := range before {
			c.arrives(c.server)
		}
		reaches("after "+name, from(a, answer), true)
	}
	// A ClusterNetworkPolicy also decides about packets to the node, whose address the Service's is for the kernel.
	for name, want := range map[string]bool{"Accept": true, "Deny": false} {
		p := &policyv1alpha2.ClusterNetworkPolicy{}
		p.Name = "services"
		must(t, yaml.UnmarshalStrict([]byte(`{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [
			{action: `+name+`, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: b}}}}]}, {action: Deny, to: [{networks: ["0.0.0.0/0", "::/0"]}]}]}`), &p.Spec))
		n.change(func(c *policy.Compiler) { c.SetClusterPolicy(p) })
		n.written()
		limit := lost
		if want {
			limit = answer
		}
		reaches(name+" in a ClusterNetworkPolicy", from(a, limit), want)
		reaches(name+" in a ClusterNetworkPolicy, the node", itself, true)
		n.change(func(c *policy.Compiler) { c.DeletePolicy(policy.ClusterPolicyID("services")) })
		n.cuts(0)
	}
	n.policy("open", "{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: b}}}], ports: [{port: 80}]}]}")
	n.written()
	reaches("egress to the Service's pod", from(a, answer), true)
	for _, c := range before {
		c.passes(c.client, c.server)
	}
}
