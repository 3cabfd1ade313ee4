package policytest

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/policy"
)

// TestKubernetesCases has the situations of Kubernetes' own tests of NetworkPolicy (test/e2e/network/netpol), for each
// pair of nine pods and each of six ports. A pod NAMESPACE/NAME has the label pod=NAME, and its namespace ns=NAMESPACE.
// A test with several steps is several cases here.
//
// Kubernetes' tests expect in some cases that a pod cannot reach itself, but do not check it. Here it always can.
func TestKubernetesCases(t *testing.T) {
	t.Parallel()
	const a = `{podSelector: {matchLabels: {pod: a}}, `
	const fromY81 = a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}], ports: [{port: 81, protocol: TCP}]}]}`
	const largeBlock, hostBlock = `cidr: 10.0.0.0/16, except: [10.0.1.2/32]`, `cidr: 10.0.1.2/32`
	relabel := func(name string, labels map[string]string) func(*policy.World) {
		return func(w *policy.World) {
			for _, e := range w.Endpoints {
				if e.Namespace+"/"+e.Name == name {
					e.Labels = labels
				}
			}
		}
	}
	for _, c := range []struct {
		name     string
		policies []string
		change   func(*policy.World)
		only     []string // "PODS < SOURCES" and "PODS > DESTINATIONS", then ": PROTOCOL [PORT]" if only these are allowed
	}{
		{"default deny ingress", []string{`{podSelector: {}, policyTypes: [Ingress]}`}, nil, []string{"x/* <"}},
		{"default deny all", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, nil, []string{"x/* <", "x/* >"}},
		{"deleted policies", nil, nil, nil},
		{"pods of the server's namespace", []string{a + `ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}`}, nil, []string{"x/a < x/b"}},
		{"ingress for one target", []string{`{podSelector: {}, ingress: []}`, a + `ingress: [{from: [{podSelector: {}, namespaceSelector: {}}]}]}`}, nil,
			[]string{"x/a < */*", "x/[bc] <"}},
		{"pods of all namespaces", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {}}}]}]}`}, nil, []string{"x/a < */*"}},
		{"another namespace", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}`}, nil, []string{"x/a < y/*"}},
		{"a podSelector with an expression", []string{a + `ingress: [{from: [{podSelector: {matchExpressions: [{key: pod, operator: In, values: [b]}]}}]}]}`}, nil,
			[]string{"x/a < x/b"}},
		{"a namespaceSelector with an expression", []string{a + `ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: In, values: ["y"]}]}}]}]}`}, nil,
			[]string{"x/a < y/*"}},
		{"podSelector or namespaceSelector", []string{a + `ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}, {podSelector: {matchLabels: {pod: b}}}]}]}`}, nil,
			[]string{"x/a < y/* z/* x/b"}},
		{"podSelector and namespaceSelector", []string{a + `ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}, podSelector: {matchLabels: {pod: b}}}]}]}`}, nil,
			[]string{"x/a < y/b z/b"}},
		{"several pods of several namespaces", []string{a + `ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}, podSelector: {matchExpressions: [{key: pod, operator: In, values: [b, c]}]}}]}]}`}, nil,
			[]string{"x/a < [yz]/[bc]"}},
		{"any of two podSelectors", []string{a + `ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}, {podSelector: {matchLabels: {pod: c}}}]}]}`}, nil,
			[]string{"x/a < x/b x/c"}},
		{"one pod of another namespace", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: a}}}]}]}`}, nil,
			[]string{"x/a < y/a"}},
		{"a port", []string{fromY81}, nil, []string{"x/a < y/* : TCP 81"}},
		{"stacked policies", []string{fromY81, strings.ReplaceAll(fromY81, "81", "80")}, nil, []string{"x/a < y/* : TCP 81", "x/a < y/* : TCP 80"}},
		{"allow all", []string{`{podSelector: {matchLabels: {}}, ingress: [{}]}`}, nil, nil},
		{"a named port", []string{`{podSelector: {}, ingress: [{ports: [{port: serve-81-tcp}]}]}`}, nil, []string{"x/* < */* : TCP 81"}},
		{"a named port for a namespace", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}], ports: [{port: serve-80-tcp, protocol: TCP}]}]}`}, nil,
			[]string{"x/a < y/* : TCP 80"}},
		{"a named port for egress", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: serve-80-tcp}]}]}`}, nil, []string{"x/* > */* : TCP 80"}},
		{"a named port that does not exist", []string{a + `ingress: [{ports: [{port: no-such-port, protocol: TCP}]}]}`}, nil, []string{"x/a <"}},
		{"an updated policy", []string{`{podSelector: {matchLabels: {}}, ingress: []}`}, nil, []string{"x/* <"}},
		{"a namespace before its labels change", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns2: updated}}}]}]}`}, nil, []string{"x/a <"}},
		{"a namespace after its labels changed", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns2: updated}}}]}]}`},
			func(w *policy.World) { w.Namespaces["y"]["ns2"] = "updated" }, []string{"x/a < y/*"}},
		{"a pod before its labels change", []string{a + `ingress: [{from: [{podSelector: {matchLabels: {pod: b, pod2: updated}}}]}]}`}, nil, []string{"x/a <"}},
		{"a pod after its labels changed", []string{a + `ingress: [{from: [{podSelector: {matchLabels: {pod: b, pod2: updated}}}]}]}`},
			relabel("x/b", map[string]string{"pod": "b", "pod2": "updated"}), []string{"x/a < x/b"}},
		{"pods of other namespaces", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {}}}]}]}`}, nil, []string{"x/* < x/*"}},
		{"a target before its labels change", []string{`{podSelector: {matchLabels: {target: isolated}}, ingress: []}`}, nil, nil},
		{"a target after its labels changed", []string{`{podSelector: {matchLabels: {target: isolated}}, ingress: []}`},
			relabel("x/a", map[string]string{"pod": "a", "target": "isolated"}), []string{"x/a <"}},
		{"deny egress of some pods", []string{a + `policyTypes: [Egress]}`}, nil, []string{"x/a >"}},
		{"deny egress of a namespace", []string{`{podSelector: {}, policyTypes: [Egress]}`}, nil, []string{"x/* >"}},
		{"ingress and egress together", []string{a + `policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}], egress: [{ports: [{port: 80, protocol: TCP}]}]}`}, nil,
			[]string{"x/a < x/b", "x/a > */* : TCP 80"}},
		{"egress is denied although the server allows it",
			[]string{a + `policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: a}}}]}]}`,
				`y: ` + a + `ingress: [{from: [{namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}]}]}`,
				`y: {podSelector: {matchLabels: {pod: b}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}]}]}`}, nil,
			[]string{"x/a > y/a", "y/a < x/a", "y/b < x/a"}},
		{"egress to a pod of another namespace", []string{a + `policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: a}}}]}]}`}, nil,
			[]string{"x/a > y/a"}},
		{"any port of a protocol", []string{a + `ingress: [{ports: [{protocol: TCP}]}]}`}, nil, []string{"x/a < */* : TCP"}},
		{"one port of ingress", []string{`{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`}, nil, []string{"x/* < */* : TCP 80"}},
		{"one port of ingress, and another policy allows all", []string{`{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`, `{podSelector: {}, ingress: [{}]}`}, nil, nil},
		{"one port of egress", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`}, nil, []string{"x/* > */* : TCP 80"}},
		{"one port of egress, and another policy allows all", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`,
			`{podSelector: {}, policyTypes: [Egress], egress: [{}]}`}, nil, nil},
		{"egress to a block of one pod", []string{a + `policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.2.2/32}}]}]}`}, nil, []string{"x/a > y/b"}},
		{"egress to a block except a pod", []string{a + `policyTypes: [Egress], egress: [{to: [{ipBlock: {` + largeBlock + `}}]}]}`}, nil, []string{"x/a > x/c [yz]/*"}},
		{"the exception of one policy is the block of another", []string{a + `policyTypes: [Egress], egress: [{to: [{ipBlock: {` + largeBlock + `}}]}]}`,
			a + `policyTypes: [Egress], egress: [{to: [{ipBlock: {` + hostBlock + `}}]}]}`}, nil, nil},
		{"egress alone", []string{a + `policyTypes: [Egress], egress: [{}]}`}, nil, nil},
		{"egress and ingress are independent", []string{a + `policyTypes: [Egress], egress: [{}]}`, a + `ingress: []}`}, nil, []string{"x/a <"}},
		{"SCTP is not TCP", []string{`{podSelector: {}}`, a + `ingress: [{ports: [{port: 81, protocol: SCTP}]}]}`}, nil, []string{"x/a < */* : SCTP 81", "x/[bc] <"}},
		{"a policy that allows SCTP isolates", []string{a + `ingress: [{ports: [{port: 80, protocol: SCTP}]}]}`}, nil, []string{"x/a < */* : SCTP 80"}},
		{"UDP is not TCP", []string{a + `ingress: [{ports: [{port: 81, protocol: UDP}]}]}`}, nil, []string{"x/a < */* : UDP 81"}},
		{"the default label of a namespace", []string{a + `ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "y"}}}]}]}`}, nil, []string{"x/a < y/*"}},
		{"an expression about the default label of a namespace",
			[]string{a + `policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}]}}]}]}`}, nil,
			[]string{"x/a > y/* z/*"}},
		{"UDP: a port", []string{strings.ReplaceAll(fromY81, "TCP", "UDP")}, nil, []string{"x/a < y/* : UDP 81"}},
		{"SCTP: a port", []string{strings.ReplaceAll(fromY81, "TCP", "SCTP")}, nil, []string{"x/a < y/* : SCTP 81"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := ninePods()
			add(t, w, c.policies...)
			if c.change != nil {
				c.change(w)
			}
			for _, src := range w.Endpoints {
				for _, dst := range w.Endpoints {
					for _, port := range dst.Ports {
						p := policy.Packet{Src: src.Addresses[0], Dst: dst.Addresses[0], Protocol: port.Protocol, Port: port.Number}
						from, to := src.Namespace+"/"+src.Name, dst.Namespace+"/"+dst.Name
						want := from == to || permits(c.only, "<", to, from, p) && permits(c.only, ">", from, to, p)
						if d := Decide(w, p); d.Allowed() != want {
							t.Errorf("%s to %s %s %d: %+v, want %v", from, to, p.Protocol, p.Port, d, want)
						}
					}
				}
			}
		})
	}
}

// permits reports whether the lines about a pod and a direction permit a packet. Without such a line, all is permitted.
func permits(only []string, direction, pod, peer string, p policy.Packet) bool {
	restricted := false
	for _, line := range only {
		line, ports, _ := strings.Cut(line, ":")
		f := strings.Fields(line)
		if f[1] != direction || !matches(f[0], pod) {
			continue
		}
		restricted = true
		service := fmt.Sprintf("%s %d ", p.Protocol, p.Port)
		if slices.ContainsFunc(f[2:], func(s string) bool { return matches(s, peer) }) && strings.HasPrefix(service, strings.TrimSpace(ports)) {
			return true
		}
	}
	return !restricted
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// ninePods returns the pods a, b and c in each of the namespaces x, y and z, on one node.
func ninePods() *policy.World {
	w := &policy.World{Namespaces: map[string]map[string]string{}, Nodes: []*policy.Node{{Name: "node", Addresses: addresses("172.16.0.1")}}}
	for i, ns := range []string{"x", "y", "z"} {
		w.Namespaces[ns] = map[string]string{"ns": ns, "kubernetes.io/metadata.name": ns}
		for j, name := range []string{"a", "b", "c"} {
			e := &policy.Endpoint{Namespace: ns, Name: name, Node: "node", Labels: map[string]string{"pod": name},
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i + 1), byte(j + 1)})}}
			for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
				for _, number := range []uint16{80, 81} {
					name := fmt.Sprintf("serve-%d-%s", number, strings.ToLower(protocol))
					e.Ports = append(e.Ports, policy.NamedPort{Name: name, Protocol: protocol, Number: number})
				}
			}
			w.Endpoints = append(w.Endpoints, e)
		}
	}
	return w
}
