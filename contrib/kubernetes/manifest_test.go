package kubernetes

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestManifest compares the published manifest with the chart. Set UPDATE=1 to write it.
func TestManifest(t *testing.T) {
	t.Parallel()
	got, err := Manifest(Options{Namespace: DefaultNamespace})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("fairlead.yaml", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("fairlead.yaml")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("fairlead.yaml differs from the chart (%v): run UPDATE=1 go test ./contrib/kubernetes", err)
	}
	for _, doc := range strings.Split(string(got), "\n---\n") {
		var o struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.UnmarshalStrict([]byte(doc), &map[string]any{}); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil || o.Kind == "" || o.APIVersion == "" || o.Metadata.Name == "" {
			t.Errorf("not an object: %+v, %v in\n%s", o, err, doc)
		}
	}
}

// TestValues checks what values change in the manifest.
func TestValues(t *testing.T) {
	t.Parallel()
	render := func(set ...string) string {
		t.Helper()
		o := Options{Namespace: "net", Version: "9.9.9", Values: Values{}}
		for _, text := range set {
			v, err := Set(text)
			if err != nil {
				t.Fatal(err)
			}
			o.Values.Merge(v)
		}
		raw, err := Render(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	plain := render()
	for set, want := range map[string]string{
		"network.nat=false": "      nat: false",
		"network.subnets=[{cidr: 10.0.0.0/8, block: 24}]": "block: 24\n        cidr: 10.0.0.0/8",
		"network.mtu=1400":                                  "      mtu: 1400",
		"isolatedNetworks=true":                             "privileged: true",
		"podNetworks.enabled=true":                          "podNetworks: {enabled: true}",
		"podNetworks={enabled: true, kubelet: /k}":          "hostPath: {path: /k/pod-resources, type",
		"podNetworks={enabled: true, definitions: true}":    "name: network-attachment-definitions.k8s.cni.cncf.io",
		"podNetworks={enabled: true, definitions: false}":   "resources: [pods], verbs: [patch]",
		"flannel.enabled=true":                              "    flannel: {prefix: flannel.alpha.coreos.com, subnetFile: /run/flannel/subnet.env}\n",
		"flannel={enabled: true, prefix: example.com/x}":    "{prefix: example.com/x, subnetFile",
		"image.tag=1.10":                                    "/fairlead:1.10\n",
		"image.tag=0123":                                    "/fairlead:0123\n",
		"image.tag=12345e7":                                 "/fairlead:12345e7\n",
		`image.tag="2026"`:                                  "/fairlead:2026\n",
		"image.tag=dev":                                     "/fairlead:dev\n",
		"image.digest=sha256:" + strings.Repeat("0a", 32):   "/fairlead@sha256:0a0a",
		"maxUnavailable=3":                                  "{maxUnavailable: 3}",
		"agent={port: 1234, logLevel: debug}":               "listen: 127.0.0.1:1234",
		"flannel={enabled: true, prefix: \"2026\"}":         "{prefix: \"2026\", subnetFile",
		"agent.grace=30s":                                   "    grace: 30s\n",
		"agent.resources={limits: {memory: 1Gi}}":           "memory: 1Gi",
		"nodeSelector={disk: ssd}":                          "disk: ssd",
		"tolerations=[]":                                    "tolerations:\n        []",
		"cni.binaries=/usr/libexec/cni":                     "{path: /usr/libexec/cni, ",
		`cni.list={name: x, plugins: [{type: "bridge"}]}`:   "- type: bridge",
		"network.backends=[{type: wireguard, port: 51820}]": "type: wireguard",
	} {
		if strings.Contains(plain, want) || !strings.Contains(render(set), want) {
			t.Errorf("%s: want %q in the manifest, and not without the value", set, want)
		}
	}
	if text := render("podNetworks={enabled: true, definitions: false}"); strings.Contains(text, "kind: NetworkAttachmentDefinition") {
		t.Error("podNetworks.definitions=false creates the type")
	}
	for _, want := range []string{"image: docker.io/fairlead/fairlead:9.9.9\n", "system:serviceaccount:net:fairlead", "name: net\n", "namespace: net}"} {
		if !strings.Contains(plain, want) {
			t.Errorf("want %q in the manifest", want)
		}
	}
}

// TestWrongValues checks that errors name the key.
func TestWrongValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"network.natt=true":                      `there is no such key: did you mean "nat"?`,
		"networks={}":                            `did you mean "network"?`,
		"nat":                                    "want KEY=VALUE",
		"=1":                                     "want KEY=VALUE",
		"network.nat=[":                          "network.nat=[",
		"agent.port=x":                           "want a number",
		"agent.grace=5":                          "agent.grace",
		"agent.grace=0":                          "agent.grace",
		"network.subnets=[]":                     "subnets is empty",
		"network.subnets=[{cidr: 10.0.0.1/8}]":   "want its first address",
		"network.backends=[{type: udp}]":         "want one of host-gw",
		"network.vni=100":                        "want it as vni of the backend vxlan",
		"network=null":                           "network is absent",
		"tolerations=null":                       "tolerations is absent",
		"tolerations=[5]":                        "tolerations[0] is 5: want an object",
		"tolerations=[{operator: Exists}, null]": "tolerations[1] is null",
		"nodeSelector=null":                      "nodeSelector is absent",
		"agent.resources=null":                   "agent.resources is absent",
		"cni.list=null":                          "cni.list is absent",
		"image=null":                             "image is absent",
		"agent.port=70000":                       "agent.port is 70000: want a port from 1 to 65535",
		"agent.port=0":                           "agent.port is 0",
		"agent.port=-1":                          "agent.port is -1",
		"agent.logLevel=loud":                    `agent.logLevel is "loud": want debug, info, warn, error`,
		"agent.logLevel=a, --listen=0:1":         "agent.logLevel",
		"agent.resources=5":                      "agent.resources is 5",
		"image.pullPolicy=Sometimes":             `image.pullPolicy is "Sometimes"`,
		"image.repository=":                      "image.repository",
		"image.digest=sha256:12":                 "image.digest",
		"cni.directory=relative":                 "cni.directory",
		"cni.binaries=":                          "cni.binaries",
		"podNetworks.kubelet=":                   "podNetworks.kubelet",
		"cni.file=../x.conflist":                 "cni.file",
		"cni.file=x.conf":                        "cni.file",
		"cni.list=5":                             "cni.list: 5 is not a network configuration list",
		"cni.list={name: a, plugins: []}":        "cni.list",
		"nodeSelector=5":                         "nodeSelector is 5",
		"nodeSelector={a: [b]}":                  "nodeSelector",
		"maxUnavailable=0":                       "maxUnavailable is 0",
		"maxUnavailable=0%":                      "maxUnavailable",
		"maxUnavailable={a: 1}":                  "maxUnavailable",
		"flannel.prefix=":                        "flannel.prefix",
		"network.subnets=[{cidr: 10.0.0.0/8, assign: podCidr}]": "assign",
	} {
		v, err := Set(text)
		if err == nil {
			_, err = Render(Options{Values: v, Namespace: DefaultNamespace})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestSetErrors verifies that an error of Set names what the user typed, without positions in other text.
func TestSetErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"network.subnets=5":      "network.subnets=5: network.subnets = 5: want a list, like [{cidr: 10.244.0.0/16}]",
		"image.tagg=1":           `image.tagg=1: image.tagg: there is no such key: did you mean "tag"?`,
		"network.subnets=[{a: 1": "network.subnets=[{a: 1: a mapping that begins with { is not closed: want , or }",
	} {
		if _, err := Set(text); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSchema checks that values.schema.json, with which Helm checks values, has the limits of the types that JSON
// lacks.
func TestSchema(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Required   []string
		Properties struct {
			Agent struct {
				Properties struct {
					Grace struct {
						Pattern string
						AllOf   []struct{ Pattern string }
					}
				}
			}
			NodeSelector struct{ AdditionalProperties map[string]string }
			Tolerations  struct{ Items map[string]string }
		}
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	all, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for name := range all { // Helm removes a value that is null, and the templates need all
		if !slices.Contains(s.Required, name) {
			t.Errorf("%s is not required", name)
		}
	}
	grace := s.Properties.Agent.Properties.Grace
	patterns := []string{grace.Pattern}
	for _, p := range grace.AllOf {
		patterns = append(patterns, p.Pattern)
	}
	for text, ok := range map[string]bool{
		"5m": true, "1h30m": true, "1.5h": true, "300ms": true, "10s": true, "0": false, "0s": false, "0h0m": false, "5": false, "5x": false, "-5m": false, "": false, "m": false,
	} {
		matches := !slices.ContainsFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(text) })
		if _, err := Set("agent.grace=" + text); matches != ok || (err == nil) != ok {
			t.Errorf("grace %q: matches %v, %v; want %v", text, matches, err, ok)
		}
	}
	if s.Properties.NodeSelector.AdditionalProperties["type"] != "string" || s.Properties.Tolerations.Items["type"] != "object" {
		t.Errorf("nodeSelector or tolerations: %+v", s)
	}
}

// TestDefinitionsStay checks that "helm uninstall" deletes no definition: with it, all its objects would go.
func TestDefinitionsStay(t *testing.T) {
	t.Parallel()
	raw, err := Render(Options{Namespace: DefaultNamespace, Values: Values{"podNetworks": map[string]any{"enabled": true}}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		if !strings.Contains(doc, "kind: CustomResourceDefinition\n") {
			continue
		}
		if n++; !strings.Contains(doc, "\n  annotations: {helm.sh/resource-policy: keep}\n") {
			t.Errorf("Helm would delete\n%.200s", doc)
		}
	}
	if n != 5 {
		t.Errorf("%d definitions", n)
	}
}

// TestColumns checks that no column of kubectl get takes all values of a list: kubectl prints the first one only.
func TestColumns(t *testing.T) {
	raw, err := os.ReadFile("fairlead.yaml")
	if err != nil {
		t.Fatal(err)
	}
	columns := regexp.MustCompile(`(?m)^ +- \{name: .*jsonPath: .*$`).FindAllString(string(raw), -1)
	if len(columns) < 20 {
		t.Fatalf("%d columns", len(columns))
	}
	for _, c := range columns {
		if strings.Contains(c, "[*]") {
			t.Errorf("kubectl get shows one value only: %s", strings.TrimSpace(c))
		}
	}
}
