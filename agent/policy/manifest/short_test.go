package manifest

import (
	"bytes"
	"strings"
	"testing"

	strict "sigs.k8s.io/yaml"
)

func TestShort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ short, want string }{
		{"{policy: p, for: '*', in: []}", "{podSelector: {}, policyTypes: [Ingress]}"},
		{"{policy: p, for: app=db, in: [{from: app=web, ports: 5432}]}",
			"{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{protocol: TCP, port: 5432}]}]}"},
		{"{policy: p, for: 'app in (a,b),!old', out: [{to: ['10.0.0.0/8', 'fd00::1', app], ports: [53/udp, 8000-8080, 1/SCTP]}]}",
			"{podSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}, {key: old, operator: DoesNotExist}]}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 'fd00::1/128'}}, {podSelector: {matchExpressions: [{key: app, operator: Exists}]}}], ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 8000, endPort: 8080}, {protocol: SCTP, port: 1}]}]}"},
		{"{policy: p, for: a=b, in: [{}], out: [{to: ['*', a=b], ports: 80}]}",
			"{podSelector: {matchLabels: {a: b}}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{ports: [{protocol: TCP, port: 80}]}]}"},
	} {
		w, _, err := Load(strings.NewReader(c.short), "-")
		if err != nil || len(w.Policies) != 1 || w.Policies[0].Namespace != "default" || w.Policies[0].Name != "p" {
			t.Errorf("%s: %v, %+v", c.short, err, w)
			continue
		}
		got, err := strict.Marshal(w.Policies[0].Spec)
		want, wantErr := strict.Marshal(w.Policies[0].Spec)
		if err == nil && wantErr == nil {
			w.Policies[0].Spec.Reset()
			wantErr = strict.UnmarshalStrict([]byte(c.want), &w.Policies[0].Spec)
			want, err = strict.Marshal(w.Policies[0].Spec)
		}
		if err != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %v:\n%s, want\n%s", c.short, err, wantErr, got, want)
		}
	}
}

func TestInvalidShort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{policy: '', for: a=b, in: []}":                      "want a name",
		"{policy: p, for: a=b}":                               `want "in" or "out"`,
		"{policy: p, for: a=b, in: , out: []}":                "in: the value is missing: write [] for nobody",
		"{policy: p, for: a=b, in: [], out: null}":            "out: the value is missing",
		"{policy: p, for: a=b, in: [{from: a=b}, null]}":      "in: a rule is missing: write {} for everybody",
		"{policy: p, in: []}":                                 "for: want labels",
		"{policy: p, for: 'a b', in: []}":                     "for: ",
		"{policy: p, for: a=b, in: [{to: a=b}]}":              `in[0]: to: want "from" here`,
		"{policy: p, for: a=b, out: [{from: a=b}]}":           `out[0]: from: want "to" here`,
		"{policy: p, for: a=b, in: [{from: []}]}":             "from: the list is empty",
		"{policy: p, for: a=b, in: [{from: ['']}]}":           `from: "" is neither`,
		"{policy: p, for: 'a=b,a=c', in: []}":                 `for: two values for the label "a": for either of them, write "a in (b,c)"`,
		"{policy: p, for: a=b, in: [{from: 'a==b,c,a=b'}]}":   `two values for the label "a"`,
		"{policy: p, for: a=b, in: [{from: 10.0.0.0/33}]}":    `from: "10.0.0.0/33" is neither`,
		"{policy: p, for: a=b, in: [{from: [{a: b}]}]}":       "want a text or a number",
		"{policy: p, for: a=b, in: [{ports: []}]}":            "ports: the list is empty",
		"{policy: p, for: a=b, in: [{ports: 0}]}":             `ports: "0": want a port`,
		"{policy: p, for: a=b, in: [{ports: 65536}]}":         `ports: "65536": want a port`,
		"{policy: p, for: a=b, in: [{ports: 80/icmp}]}":       `ports: "80/icmp": want a port`,
		"{policy: p, for: a=b, in: [{ports: 9-8}]}":           `ports: "9-8": want a port`,
		"{policy: p, for: a=b, in: [{ports: http}]}":          `ports: "http": want a port`,
		"{policy: p, for: a=b, in: [{port: 80}]}":             `unknown field "in[0].port"`,
		"{policy: p, for: a=b, in: [], in: [{}]}":             `the key "in" occurs twice`,
		"{policy: p, For: a=b, in: []}":                       "For",
		"{policy: p, for: a=b, in: [{ports: 80.5}]}":          `ports: "80.5": want a port`,
		"{policy: p, for: 'a in (b', in: []}":                 "for: ",
		"{policy: p, for: a=b, in: {from: '*'}}":              "in: want a list",
		"{policy: p, for: a=b, in: [{from: 'fe80::1%eth0'}]}": `"fe80::1%eth0" is neither`,
	} {
		if w, _, err := Load(strings.NewReader(text), "-"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %+v, want %q", text, err, w, want)
		}
	}
}
