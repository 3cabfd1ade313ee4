package policytest

import (
	"strings"
	"testing"
)

const (
	closed = `{podSelector: {}, policyTypes: [Ingress, Egress]}` // a NetworkPolicy
	open   = `{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`
)

// rules returns a ClusterNetworkPolicy for namespace x.
func rules(head, rules string) string {
	return `{` + head + `, subject: {namespaces: {matchLabels: {team: red}}}, ` + rules + `}`
}

// TestClusterNetworkPolicy checks each statement of the documentation of ClusterNetworkPolicy.
func TestClusterNetworkPolicy(t *testing.T) {
	t.Parallel()
	const admin, baseline = `tier: Admin, priority: 10`, `tier: Baseline, priority: 10`
	const denyAll, acceptAll, passAll = `ingress: [{action: Deny, from: [{namespaces: {}}]}]`, `ingress: [{action: Accept, from: [{namespaces: {}}]}]`, `ingress: [{action: Pass, from: [{namespaces: {}}]}]`
	for _, c := range []world{
		{"Admin Deny is final", []string{rules(admin, denyAll), open, rules(baseline, acceptAll)},
			[]string{"x/a > y/c TCP 80", "203.0.113.1 > x/a TCP 80"}, []string{"y/c > x/a TCP 80", "x/b > x/a ICMP"}},
		{"Admin Accept is final for its direction", []string{rules(admin, acceptAll), closed},
			[]string{"y/c > x/a TCP 80"}, []string{"x/a > y/c TCP 80", "203.0.113.1 > x/a TCP 80"}},
		{"Admin Pass leads to NetworkPolicy", []string{rules(admin, passAll), rules(`tier: Admin, priority: 11`, denyAll), closed, rules(baseline, acceptAll)},
			nil, []string{"y/c > x/a TCP 80"}},
		{"Admin Pass leads to Baseline without a NetworkPolicy", []string{rules(admin, passAll), rules(`tier: Admin, priority: 11`, acceptAll), rules(baseline, denyAll)},
			[]string{"x/a > y/c TCP 80"}, []string{"y/c > x/a TCP 80"}},
		{"Admin Pass without other policies allows", []string{rules(admin, passAll), rules(`tier: Admin, priority: 11`, denyAll)},
			[]string{"y/c > x/a TCP 80"}, nil},
		{"a NetworkPolicy hides Baseline in its direction only",
			[]string{`{podSelector: {}, ingress: [{}]}`, rules(baseline, denyAll+`, egress: [{action: Deny, to: [{namespaces: {}}]}]`)},
			[]string{"y/c > x/a TCP 80"}, []string{"x/a > y/c TCP 80"}},
		{"Baseline Accept, Deny and Pass without a NetworkPolicy",
			[]string{rules(baseline, `ingress: [{action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}]},
				{action: Pass, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 81}}}]}, {action: Deny, from: [{namespaces: {}}]}]`)},
			[]string{"y/c > x/a TCP 80", "y/c > x/a TCP 81"}, []string{"y/c > x/a TCP 82"}},
		{"a lower priority value is checked first", []string{rules(`tier: Admin, priority: 9`, acceptAll), rules(`tier: Admin, priority: 8`, denyAll)},
			nil, []string{"y/c > x/a TCP 80"}},
		{"at equal priority the name decides", []string{rules(admin, acceptAll), rules(admin, denyAll)}, []string{"y/c > x/a TCP 80"}, nil},
		{"the first matching rule of a policy decides",
			[]string{rules(admin, `ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}]}, {action: Accept, from: [{namespaces: {}}]}]`), closed},
			[]string{"y/d > x/a TCP 80"}, []string{"y/c > x/a TCP 80"}},
		{"a Deny rule for other labels", []string{rules(admin, `ingress: [{action: Deny, from: [{pods: {podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}}]}]`)},
			[]string{"y/c > x/a TCP 80", "x/b > x/a TCP 80"}, []string{"y/d > x/a TCP 80"}},
		{"no implicit isolation", []string{rules(admin, `ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: blue}}}]}]`)},
			[]string{"y/c > x/a TCP 80", "x/b > x/a TCP 80", "203.0.113.1 > x/a TCP 80"}, nil},
		{"a pods subject needs both selectors",
			[]string{`{tier: Admin, priority: 0, subject: {pods: {namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: web}}}}, ` + denyAll + `}`},
			[]string{"y/d > y/c TCP 80", "y/d > x/b TCP 80"}, []string{"y/d > x/a TCP 80"}},
		{"empty selectors of a subject select everything", []string{`{tier: Admin, priority: 0, subject: {pods: {namespaceSelector: {}, podSelector: {}}}, ` + denyAll + `}`},
			nil, []string{"y/d > x/a TCP 80", "x/a > y/d TCP 80"}},
		{"an absent namespaceSelector of pods selects all namespaces", []string{`{tier: Admin, priority: 0, subject: {pods: {podSelector: {matchLabels: {app: web}}}}, ` + denyAll + `}`},
			[]string{"x/a > x/b TCP 1"}, []string{"y/d > x/a TCP 80", "x/a > y/c TCP 80"}},
		{"namespaces and pods match no node and no other address", []string{rules(admin, `egress: [{action: Deny, to: [{namespaces: {}}, {pods: {podSelector: {}}}]}], `+denyAll)},
			[]string{"x/a > n2 TCP 80", "x/a > 203.0.113.1 TCP 80", "n2 > x/a TCP 80"}, []string{"x/a > y/d TCP 80", "y/d > x/a TCP 80"}},
		{"nodes match all addresses of the nodes, and nothing else", []string{rules(admin, `egress: [{action: Deny, to: [{nodes: {}}]}]`)},
			[]string{"x/a > y/c TCP 80", "x/a > 203.0.113.1 TCP 80", "y/c > n1 TCP 80"}, []string{"x/a > n2 TCP 80", "x/a#1 > n2#1 ICMP"}},
		{"nodes select by the labels of the nodes", []string{`{tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {matchLabels: {role: control}}}]}]}`},
			[]string{"x/a > n2 TCP 80"}, []string{"y/c > n1 TCP 80", "y/c#1 > n1#1 UDP 53"}},
		{"networks match by address, also endpoints and nodes", []string{rules(admin, `egress: [{action: Accept, to: [{networks: [10.0.2.1/32, 203.0.113.0/24]}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]`), open},
			[]string{"x/a > y/c TCP 80", "x/a > 203.0.113.9 TCP 80", "x/a#1 > y/d#1 TCP 80"}, []string{"x/a > y/d TCP 80", "x/a > n2 TCP 80"}},
		{"domainNames match nothing", []string{rules(admin, `egress: [{action: Accept, to: [{domainNames: ["*.example.com"]}]}, {action: Accept, to: [{domainNames: [example.com]}, {networks: [203.0.113.0/24]}]}]`), closed},
			[]string{"x/a > 203.0.113.1 TCP 443"}, []string{"x/a > 198.51.100.1 TCP 443", "x/a > y/c TCP 443"}},
		{"protocols with numbers and ranges", []string{rules(admin, `ingress: [{action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {range: {start: 65534, end: 65535}}}}, {sctp: {destinationPort: {number: 1}}}]}]`), closed, `y: ` + open},
			[]string{"y/c > x/a TCP 80", "y/c > x/a UDP 65534", "y/c > x/a UDP 65535", "y/c > x/a SCTP 1"},
			[]string{"y/c > x/a TCP 81", "y/c > x/a UDP 80", "y/c > x/a UDP 65533", "y/c > x/a SCTP 80", "y/c > x/a TCP 1", "y/c > x/a ICMP"}},
		{"absent protocols: everything, also ICMP", []string{rules(admin, denyAll)}, nil, []string{"y/c > x/a ICMP", "y/c > x/a SCTP 1"}},
		{"a named port has the protocol of the destination", []string{rules(admin, `ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: http}, {destinationNamedPort: dns}]}], egress: [{action: Deny, to: [{namespaces: {}}], protocols: [{destinationNamedPort: http}]}]`)},
			[]string{"y/c > x/a UDP 80", "y/c > x/a TCP 53", "y/c > x/b TCP 80", "x/a > y/c TCP 80", "x/a > y/d TCP 80"},
			[]string{"y/c > x/a TCP 80", "y/c > x/a UDP 53", "y/c > x/b TCP 8080", "x/a > y/c SCTP 80", "x/a > x/b TCP 8080"}},
		{"no rules in a direction: no effect", []string{rules(admin, denyAll)}, []string{"x/a > y/c TCP 80"}, nil},
		{"an unknown tier has no effect", []string{rules(`tier: Last, priority: 0`, denyAll)}, []string{"y/c > x/a TCP 80"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}

// TestInvalidClusterNetworkPolicy checks that an invalid rule denies everything, or matches nothing if it accepts.
func TestInvalidClusterNetworkPolicy(t *testing.T) {
	t.Parallel()
	const pods = `to: [{namespaces: {matchLabels: {team: blue}}}]`
	for name, rule := range map[string]string{
		"no peers":                             `to: []`,
		"a peer without a field":               `to: [{}]`,
		"a peer with two fields":               `to: [{namespaces: {}, networks: [0.0.0.0/0]}]`,
		"an invalid namespace selector":        `to: [{namespaces: {matchExpressions: [{key: a, operator: Like}]}}]`,
		"an invalid pod selector":              `to: [{pods: {podSelector: {matchExpressions: [{key: a, operator: In}]}}}]`,
		"an invalid node selector":             `to: [{nodes: {matchExpressions: [{key: a, operator: In}]}}]`,
		"an unparsable network":                `to: [{networks: [10.0.0.0/8, 10.0.0.256/32]}]`,
		"port 0":                               pods + `, protocols: [{tcp: {destinationPort: {range: {start: 0, end: 80}}}}]`,
		"a port above 65535":                   pods + `, protocols: [{tcp: {destinationPort: {number: 65616}}}]`,
		"a range above 65535":                  pods + `, protocols: [{tcp: {destinationPort: {range: {start: 1, end: 65536}}}}]`,
		"a range of one port":                  pods + `, protocols: [{tcp: {destinationPort: {range: {start: 80, end: 80}}}}]`,
		"a reversed range":                     pods + `, protocols: [{tcp: {destinationPort: {range: {start: 81, end: 80}}}}]`,
		"a number and a range":                 pods + `, protocols: [{tcp: {destinationPort: {number: 80, range: {start: 1, end: 99}}}}]`,
		"neither a number nor a range":         pods + `, protocols: [{tcp: {destinationPort: {}}}]`,
		"a protocol without a field":           pods + `, protocols: [{tcp: {}}]`,
		"protocols without a field":            pods + `, protocols: [{}]`,
		"two protocols in one":                 pods + `, protocols: [{tcp: {destinationPort: {number: 80}}, udp: {destinationPort: {number: 80}}}]`,
		"a named port with networks":           `to: [{networks: [0.0.0.0/0]}, {namespaces: {}}], protocols: [{destinationNamedPort: http}]`,
		"a named port with nodes":              `to: [{nodes: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}, {destinationNamedPort: http}]`,
		"a named port with domainNames":        `to: [{domainNames: [a.example]}], protocols: [{destinationNamedPort: http}]`,
		"an invalid rule for other protocols":  `to: [{}], protocols: [{udp: {destinationPort: {number: 9}}}]`,
		"invalid protocols with other sources": `to: [{namespaces: {matchLabels: {team: green}}}], protocols: [{}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packets := []string{"x/a > y/c TCP 80", "x/a > 203.0.113.1 ICMP", "x/b > n2 UDP 9"}
			admin := func(action string) string {
				return rules(`tier: Admin, priority: 5`, `egress: [{action: `+action+`, `+rule+`}]`)
			}
			world{policies: []string{admin("Accept"), closed}, denied: packets}.run(t)
			if rule != `to: []` {
				rule := strings.NewReplacer("to: [", "to: [{namespaces: {}}, ", "protocols: [", "protocols: [{tcp: {destinationPort: {number: 80}}}, ").Replace(rule)
				world{policies: []string{rules(`tier: Admin, priority: 5`, `egress: [{action: Accept, `+rule+`}]`), closed}, denied: packets}.run(t)
			}
			world{policies: []string{admin("Accept")}, allowed: packets}.run(t)
			world{policies: []string{admin("Deny"), open}, allowed: []string{"y/c > x/a TCP 80", "n1 > x/a TCP 80"}, denied: append(packets, "x/a > n1 TCP 80")}.run(t)
			world{policies: []string{admin("Pass"), open}, allowed: []string{"y/c > x/a TCP 80", "n1 > x/a TCP 80"}, denied: append(packets, "x/a > n1 TCP 80")}.run(t)
			if !strings.Contains(rule, "networks") && !strings.Contains(rule, "nodes") && !strings.Contains(rule, "domainNames") {
				from := strings.Replace(rule, "to:", "from:", 1)
				world{policies: []string{rules(`tier: Baseline, priority: 5`, `ingress: [{action: Deny, `+from+`}]`)},
					allowed: []string{"x/a > y/c TCP 80"}, denied: []string{"y/c > x/a TCP 80", "203.0.113.1 > x/a ICMP"}}.run(t)
			}
		})
	}
	for _, c := range []world{
		{"domainNames in a Deny rule", []string{rules(`tier: Admin, priority: 0`, `egress: [{action: Deny, to: [{domainNames: [example.com]}]}]`)},
			nil, []string{"x/a > 203.0.113.1 TCP 443", "x/a > y/c TCP 443"}},
		{"an unknown action denies what it matches", []string{rules(`tier: Admin, priority: 0`, `ingress: [{action: Allow, from: [{namespaces: {matchLabels: {team: blue}}}]}]`)},
			[]string{"x/b > x/a TCP 80"}, []string{"y/c > x/a TCP 80"}},
		{"an invalid subject is every endpoint, and denies everything", []string{`{tier: Admin, priority: 0, subject: {}, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: none}}}]}]}`},
			[]string{"x/a > 203.0.113.1 TCP 80"}, []string{"203.0.113.1 > x/a TCP 80", "x/a > y/d TCP 80"}},
		{"an invalid subject accepts nothing", []string{`{tier: Admin, priority: 0, subject: {namespaces: {}, pods: {podSelector: {}}}, ingress: [{action: Accept, from: [{namespaces: {}}]}]}`, `{podSelector: {}}`},
			[]string{"x/a > y/d TCP 80"}, []string{"y/d > x/a TCP 80"}},
		{"an invalid selector of a subject", []string{`{tier: Baseline, priority: 0, subject: {namespaces: {matchExpressions: [{key: a, operator: In}]}}, egress: [{action: Deny, to: [{nodes: {}}]}]}`},
			nil, []string{"x/a > y/d TCP 80", "y/d > 203.0.113.1 TCP 80"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}

// TestDecision checks which policy and rule a decision names.
func TestDecision(t *testing.T) {
	t.Parallel()
	w := smallWorld()
	add(t, w, `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 1}]}, {ports: [{port: 80}]}], policyTypes: [Ingress]}`,
		`{podSelector: {}, policyTypes: [Egress]}`,
		`{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Pass, from: [{namespaces: {matchLabels: {team: red}}}]}, {action: Deny, from: [{namespaces: {}}]}]}`,
		`{tier: Baseline, priority: 5, subject: {namespaces: {}}, egress: [{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{networks: [203.0.113.0/24]}]}]}`)
	for text, want := range map[string]Decision{
		"y/c > x/a TCP 80":         {Verdict{true, Baseline, "c1", 0}, Verdict{false, Admin, "c0", 1}},
		"x/b > x/a TCP 80":         {Verdict{false, NetworkPolicy, "x/p1", -1}, Verdict{true, NetworkPolicy, "x/p0", 1}},
		"x/b > x/a TCP 81":         {Verdict{false, NetworkPolicy, "x/p1", -1}, Verdict{false, NetworkPolicy, "x/p0", -1}},
		"y/c > 203.0.113.1 TCP 80": {Verdict{false, Baseline, "c1", 1}, Verdict{true, NoEndpoint, "", -1}},
		"y/c > 198.51.100.1 ICMP":  {Verdict{true, Default, "", -1}, Verdict{true, NoEndpoint, "", -1}},
		"n1 > x/b TCP 80":          {Verdict{true, NoEndpoint, "", -1}, Verdict{true, OwnNode, "", -1}},
		"x/a > x/a#2 TCP 80":       {Verdict{true, Itself, "", -1}, Verdict{true, Itself, "", -1}},
	} {
		if got := Decide(w, packet(t, w, text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// TestSharedAddress checks that an address belongs to the last of several endpoints that have it.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	w := smallWorld()
	add(t, w, `{podSelector: {matchLabels: {app: web}}}`)
	p := packet(t, w, "y/c > x/a TCP 80")
	if Allowed(w, p) {
		t.Errorf("%+v is allowed", p)
	}
	successor := *w.Endpoints[0]
	successor.Name, successor.Labels = "e", map[string]string{"app": "db"}
	w.Endpoints = append(w.Endpoints, &successor)
	if !Allowed(w, p) {
		t.Errorf("%+v is denied: %+v", p, Decide(w, p))
	}
}
