package policytest

import (
	"strings"
	"testing"
)

// TestNetworkPolicy checks each statement of the documentation of NetworkPolicy.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []world{
		{"without policies everything is allowed", nil,
			[]string{"x/a > y/c TCP 80", "203.0.113.1 > x/a UDP 1", "x/a > 203.0.113.1 ICMP", "203.0.113.1 > 203.0.113.2 TCP 1"}, nil},
		{"an empty podSelector selects the endpoints of the policy's namespace", []string{`{podSelector: {}}`},
			[]string{"x/a > y/c TCP 80", "x/b > y/d TCP 80"}, []string{"y/c > x/a TCP 80", "y/c > x/b TCP 80", "x/a > x/b TCP 1"}},
		{"a podSelector selects by labels", []string{`{podSelector: {matchLabels: {app: web}}}`},
			[]string{"y/d > x/b TCP 80", "x/a > y/c TCP 80"}, []string{"y/d > x/a TCP 80"}},
		{"absent and empty ingress admit nobody", []string{`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`,
			`{podSelector: {matchLabels: {app: db}}, ingress: []}`},
			[]string{"x/a > y/c TCP 80"}, []string{"y/c > x/a TCP 80", "y/c > x/b TCP 80", "203.0.113.1 > x/a ICMP"}},
		{"an empty rule admits everybody", []string{`{podSelector: {}, ingress: [{}]}`},
			[]string{"y/c > x/a TCP 80", "203.0.113.1 > x/a ICMP", "n2 > x/b SCTP 9"}, nil},
		{"an empty from with ports admits everybody on these ports", []string{`{podSelector: {}, ingress: [{from: [], ports: [{port: 80}]}]}`},
			[]string{"y/c > x/a TCP 80", "203.0.113.1 > x/b TCP 80"}, []string{"y/c > x/a TCP 81", "y/c > x/a UDP 80"}},
		{"absent policyTypes: ingress always, egress only with egress rules",
			[]string{`{podSelector: {matchLabels: {app: web}}}`, `{podSelector: {matchLabels: {app: db}}, egress: [{to: [{podSelector: {}}]}]}`},
			[]string{"x/a > y/c TCP 80"}, []string{"y/c > x/a TCP 80", "x/b > y/c TCP 80", "y/c > x/b TCP 80"}},
		{"policyTypes Egress does not isolate ingress, and ignores ingress rules",
			[]string{`{podSelector: {}, policyTypes: [Egress], ingress: [{from: [{podSelector: {}}]}]}`},
			[]string{"y/c > x/a TCP 80", "y/c > x/b TCP 80"}, []string{"x/a > y/c TCP 80", "x/b > 203.0.113.1 UDP 1"}},
		{"policies are additive", []string{`{podSelector: {}}`, `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {}}]}]}`},
			[]string{"y/c > x/a TCP 80"}, []string{"y/c > x/b TCP 80", "203.0.113.1 > x/a TCP 80"}},
		{"both egress at the source and ingress at the destination must allow",
			[]string{`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 80}, {port: 81}]}]}`,
				`y: {podSelector: {}, ingress: [{ports: [{port: 80}, {port: 82}]}]}`},
			[]string{"x/a > y/c TCP 80", "x/b > y/c TCP 82"}, []string{"x/a > y/c TCP 81", "x/a > y/c TCP 82"}},
		{"a podSelector peer is of the policy's namespace", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`},
			[]string{"x/a > x/b TCP 80"}, []string{"y/c > x/b TCP 80", "203.0.113.1 > x/b TCP 80", "n2 > x/b TCP 80"}},
		{"a namespaceSelector peer means all endpoints of these namespaces",
			[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}]}]}`},
			[]string{"y/c > x/b TCP 80", "y/d > x/b TCP 80"}, []string{"x/a > x/b TCP 80", "203.0.113.1 > x/b TCP 80"}},
		{"namespaceSelector and podSelector in one peer must both match",
			[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: web}}}]}]}`},
			[]string{"y/c > x/b TCP 80"}, []string{"y/d > x/b TCP 80", "x/a > x/b TCP 80"}},
		{"an empty namespaceSelector selects all namespaces, and no address outside", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`},
			[]string{"y/d > x/b TCP 80", "x/a > x/b TCP 80", "y/d#1 > x/b#1 TCP 80"}, []string{"n2 > x/b TCP 80", "203.0.113.1 > x/b TCP 80"}},
		{"In", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, other]}]}}]}]}`},
			[]string{"x/b > x/a TCP 80"}, []string{"x/a > x/b TCP 80"}},
		{"NotIn", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db, other]}]}}]}]}`},
			[]string{"x/a > x/b TCP 80"}, []string{"x/b > x/a TCP 80"}},
		{"Exists", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: tier, operator: Exists}]}}]}]}`},
			[]string{"x/b > x/a TCP 80"}, []string{"x/a > x/b TCP 80"}},
		{"DoesNotExist", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}}]}]}`},
			[]string{"x/a > x/b TCP 80"}, []string{"x/b > x/a TCP 80"}},
		{"all requirements of a selector must match", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: db}, matchExpressions: [{key: app, operator: Exists}, {key: tier, operator: NotIn, values: [""]}]}}]}]}`},
			nil, []string{"x/a > x/b TCP 80", "x/b > x/a TCP 80"}},
		{"NotIn and DoesNotExist match an object without the label",
			[]string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [a]}, {key: none, operator: DoesNotExist}]}}]}]}`},
			[]string{"x/a > x/b TCP 80", "x/b > x/a TCP 80"}, nil},
		{"In and Exists need the label, and an empty value is a value",
			[]string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: tier, operator: In, values: [""]}, {key: tier, operator: Exists}]}}]}]}`},
			[]string{"x/b > x/a TCP 80"}, []string{"x/a > x/b TCP 80"}},
		{"matchLabels with an empty value needs the label", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {tier: ""}}}]}]}`},
			[]string{"x/b > x/a TCP 80"}, []string{"x/a > x/b TCP 80"}},
		{"a peer matches with all addresses of an endpoint", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`},
			[]string{"x/a#2 > x/b TCP 80", "x/a#1 > x/b#1 TCP 80"}, []string{"y/c#1 > x/b#1 TCP 80"}},
		{"policy covers all addresses of an endpoint", []string{`{podSelector: {matchLabels: {app: web}}}`},
			nil, []string{"y/c > x/a#2 TCP 80", "y/c#1 > x/a#1 TCP 80"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}

// TestBlocks checks ipBlock: it matches by address only.
func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, c := range []world{
		{"an ipBlock matches endpoints, nodes and others", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`},
			[]string{"y/c > x/a TCP 80", "n2 > x/a TCP 80", "203.0.113.1 > x/a ICMP"}, []string{"y/c#1 > x/a#1 TCP 80"}},
		{"except cuts through endpoints' addresses", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.2.1/32]}}]}]}`},
			[]string{"y/d > x/a TCP 80"}, []string{"y/c > x/a TCP 80", "203.0.113.1 > x/a TCP 80"}},
		{"except of one block does not restrict another", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.2.0/24]}}, {ipBlock: {cidr: 10.0.2.1/32}}]}]}`},
			[]string{"y/c > x/a TCP 80"}, []string{"y/d > x/a TCP 80"}},
		{"except does not restrict a selector", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.2.0/24]}}, {namespaceSelector: {matchLabels: {team: blue}}}]}]}`},
			[]string{"y/c > x/a TCP 80"}, nil},
		{"except equal to cidr leaves nothing", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}]}`},
			nil, []string{"y/c > x/a TCP 80"}},
		{"except outside of cidr has no effect", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [192.168.0.0/16]}}]}]}`},
			[]string{"y/c > x/a TCP 80"}, []string{"192.168.1.1 > x/a TCP 80"}},
		{"bits behind the prefix are ignored", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.2.77/24}}]}]}`},
			[]string{"y/c > x/a TCP 80"}, []string{"203.0.113.1 > x/a TCP 80"}},
		{"IPv6", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "fd00::/16", except: ["fd00:0:0:2::1/128"]}}]}]}`},
			[]string{"y/d#1 > x/a#1 TCP 80"}, []string{"y/c#1 > x/a#1 TCP 80", "y/d > x/a TCP 80"}},
		{"egress", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.2.0/31}}]}]}`},
			[]string{"x/a > y/c TCP 80"}, []string{"x/a > y/d TCP 80", "x/a > 203.0.113.1 TCP 80"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}

// TestPorts checks the ports of a NetworkPolicy.
func TestPorts(t *testing.T) {
	t.Parallel()
	ingress := func(ports string) []string { return []string{`{podSelector: {}, ingress: [{ports: ` + ports + `}]}`} }
	egress := func(ports string) []string {
		return []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: ` + ports + `}]}`}
	}
	for _, c := range []world{
		{"without a protocol: TCP", ingress(`[{port: 80}]`),
			[]string{"y/c > x/a TCP 80"}, []string{"y/c > x/a UDP 80", "y/c > x/a SCTP 80", "y/c > x/a TCP 81"}},
		{"an empty port: all of TCP", ingress(`[{}]`),
			[]string{"y/c > x/a TCP 1", "y/c > x/a TCP 65535"}, []string{"y/c > x/a UDP 1", "y/c > x/a SCTP 1", "y/c > x/a ICMP"}},
		{"a protocol without a port: all its ports", ingress(`[{protocol: UDP}]`),
			[]string{"y/c > x/a UDP 1", "y/c > x/a UDP 65535"}, []string{"y/c > x/a TCP 1", "y/c > x/a ICMP"}},
		{"SCTP is not TCP", ingress(`[{protocol: SCTP, port: 80}]`),
			[]string{"y/c > x/a SCTP 80"}, []string{"y/c > x/a TCP 80", "y/c > x/a UDP 80"}},
		{"an empty list of ports: everything", ingress(`[]`), []string{"y/c > x/a TCP 1", "y/c > x/a ICMP"}, nil},
		{"a rule with all ports does not match ICMP", ingress(`[{port: 1, endPort: 65535}, {protocol: UDP}, {protocol: SCTP}]`),
			[]string{"y/c > x/a TCP 65535", "y/c > x/a UDP 1"}, []string{"y/c > x/a ICMP"}},
		{"a range includes both ends", ingress(`[{port: 80, endPort: 82}]`),
			[]string{"y/c > x/a TCP 80", "y/c > x/a TCP 81", "y/c > x/a TCP 82"}, []string{"y/c > x/a TCP 79", "y/c > x/a TCP 83", "y/c > x/a UDP 81"}},
		{"a range of one port", ingress(`[{port: 65535, endPort: 65535}]`), []string{"y/c > x/a TCP 65535"}, []string{"y/c > x/a TCP 65534"}},
		{"a named port resolves per destination", ingress(`[{port: http}]`),
			[]string{"y/c > x/a TCP 80", "y/c > x/b TCP 8080", "203.0.113.1 > x/a TCP 80"}, []string{"y/c > x/a TCP 8080", "y/c > x/b TCP 80", "y/c > x/a UDP 80"}},
		{"a named port needs its protocol", ingress(`[{port: dns}, {protocol: SCTP, port: http}]`), nil, []string{"y/c > x/a UDP 53", "y/c > x/a TCP 53", "y/c > x/a SCTP 80"}},
		{"a named port in egress resolves at the destination", egress(`[{port: http}, {port: http, protocol: SCTP}]`),
			[]string{"x/a > x/b TCP 8080", "x/a > y/c SCTP 80"}, []string{"x/a > x/b TCP 80", "x/a > y/c TCP 80", "x/a > y/d TCP 80", "x/a > 203.0.113.1 TCP 80"}},
		{"a named port that nobody has matches nothing", ingress(`[{port: ssh}]`), nil, []string{"y/c > x/a TCP 22"}},
		{"ports and peers of a rule must both match", []string{`{podSelector: {}, ingress: [{ports: [{port: 80}], from: [{podSelector: {}}]}, {ports: [{port: 81}], from: [{namespaceSelector: {}}]}]}`},
			[]string{"x/a > x/b TCP 80", "y/c > x/b TCP 81"}, []string{"y/c > x/b TCP 80", "203.0.113.1 > x/b TCP 81"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}

// TestAlwaysAllowed checks the traffic that no policy forbids.
func TestAlwaysAllowed(t *testing.T) {
	t.Parallel()
	closed := []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`, `y: {podSelector: {}, policyTypes: [Ingress, Egress]}`,
		`{tier: Admin, priority: 0, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}],
		egress: [{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}`}
	for _, c := range []world{
		{"a NetworkPolicy, and a node's own endpoints", closed[:2],
			[]string{"x/a > n1 TCP 10250", "x/a > n1#2 TCP 1", "x/a#2 > n1 ICMP", "n1 > x/a TCP 80"}, []string{"x/a > n2 TCP 1"}},
		{"a node and its own endpoints, with all addresses of both", closed,
			[]string{"n1 > x/a TCP 80", "n1#1 > x/a#1 UDP 1", "n1#2 > x/b ICMP"},
			[]string{"x/a > n1 TCP 10250", "x/a > n1#2 TCP 1", "x/a#2 > n1 ICMP", "n2 > x/a TCP 80", "x/a > n2 TCP 80", "n2#1 > x/a#1 TCP 80", "n1 > y/c TCP 80"}},
		{"an endpoint and itself, with all its addresses", closed,
			[]string{"x/a > x/a TCP 80", "x/a > x/a#2 UDP 1", "x/a#1 > x/a#1 ICMP"}, []string{"x/a > x/b TCP 80", "x/a > y/d TCP 1"}},
		{"packets between others", closed, []string{"203.0.113.1 > n1 TCP 80", "n1 > n2 TCP 80"}, []string{"203.0.113.1 > x/a TCP 80"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}

// TestInvalidNetworkPolicy checks that an invalid part of a NetworkPolicy opens nothing, also next to valid parts.
func TestInvalidNetworkPolicy(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]string{
		"a selector with an unknown operator": `{from: [{podSelector: {matchExpressions: [{key: app, operator: Like, values: [web]}]}}]}`,
		"In without values":                   `{from: [{podSelector: {matchExpressions: [{key: app, operator: In}]}}]}`,
		"Exists with values":                  `{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists, values: [red]}]}}]}`,
		"NotIn with an invalid key":           `{from: [{namespaceSelector: {matchExpressions: [{key: "a b", operator: NotIn, values: [red]}]}}]}`,
		"an invalid namespaceSelector":        `{from: [{podSelector: {}, namespaceSelector: {matchLabels: {"a b": c}}}]}`,
		"a peer without a field":              `{from: [{}]}`,
		"an ipBlock with a selector":          `{from: [{ipBlock: {cidr: 0.0.0.0/0}, podSelector: {}}]}`,
		"an unparsable cidr":                  `{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}`,
		"an address without a prefix length":  `{from: [{ipBlock: {cidr: 10.0.2.1}}]}`,
		"an unparsable except":                `{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.9.0.0]}}]}`,
		"a port above 65535":                  `{ports: [{port: 65616}]}`,
		"port 0":                              `{ports: [{port: 0, endPort: 65535}]}`,
		"an endPort above 65535":              `{ports: [{port: 1, endPort: 65536}]}`,
		"an endPort below port":               `{ports: [{port: 80, endPort: 79}]}`,
		"an endPort without port":             `{ports: [{endPort: 65535}]}`,
		"an endPort with a named port":        `{ports: [{port: http, endPort: 65535}]}`,
		"an empty name of a port":             `{ports: [{port: ""}]}`,
		"an unknown protocol":                 `{ports: [{protocol: tcp}]}`,
		"ICMP is no protocol of the API":      `{ports: [{protocol: ICMP}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			egress := `{podSelector: {}, policyTypes: [Egress], egress: [` + strings.ReplaceAll(rule, "from:", "to:") + `]}`
			world{policies: []string{`{podSelector: {}, ingress: [` + rule + `]}`},
				allowed: []string{"x/a > y/c TCP 80"}, denied: []string{"y/c > x/a TCP 80", "x/b > x/a TCP 80", "y/c > x/a ICMP"}}.run(t)
			world{policies: []string{egress},
				allowed: []string{"y/c > x/a TCP 80"}, denied: []string{"x/a > y/c TCP 80", "x/a > x/b TCP 80", "x/a > y/c ICMP"}}.run(t)
			more := strings.NewReplacer("from: [", "from: [{namespaceSelector: {}}, ", "ports: [", "ports: [{port: 1, endPort: 65535}, ").Replace(rule)
			world{policies: []string{`{podSelector: {}, ingress: [` + more + `]}`},
				denied: []string{"y/c > x/a TCP 80", "x/b > x/a TCP 80"}}.run(t)
			world{policies: []string{`{podSelector: {}, ingress: [` + rule + `, {ports: [{port: 81}]}]}`},
				allowed: []string{"y/c > x/a TCP 81"}, denied: []string{"y/c > x/a TCP 80"}}.run(t)
		})
	}
	for _, c := range []world{
		{"an invalid podSelector isolates the namespace, in the directions of the policy",
			[]string{`{podSelector: {matchExpressions: [{key: app, operator: In}]}, ingress: [{}]}`},
			[]string{"x/a > y/c TCP 80", "x/a > y/d TCP 80", "y/d > y/c TCP 80"}, []string{"y/c > x/a TCP 80", "y/c > x/b TCP 80"}},
		{"rules next to an invalid podSelector open nothing that another policy closes",
			[]string{`{podSelector: {matchExpressions: [{key: app, operator: In}]}, ingress: [{}]}`, `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`},
			[]string{"y/c > x/a TCP 80"}, []string{"y/c > x/a TCP 81", "y/c > x/b TCP 80"}},
		{"an unknown policy type isolates in both directions",
			[]string{`{podSelector: {matchLabels: {app: web}}, policyTypes: [ingress], ingress: [{}]}`},
			[]string{"y/c > x/b TCP 80"}, []string{"y/c > x/a TCP 80", "x/a > y/c TCP 80"}},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.run(t) })
	}
}
