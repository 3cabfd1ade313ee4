package manifest_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/policy/manifest"
)

// TestFiles checks files with mistakes: each is named, or the object is counted as one without an effect.
func TestFiles(t *testing.T) {
	t.Parallel()
	const np = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: db, namespace: shop}\nspec: {podSelector: {}}\n"
	for text, want := range map[string]string{
		np: "",
		np + "---\n" + strings.Replace(np, "shop", "other", 1): "",
		"":                "",
		np + "---\n" + np: "document 2: NetworkPolicy shop/db occurs twice",
		"policy: a\nfor: '*'\nin: []\n---\npolicy: a\nfor: '*'\nout: []\n":               "document 2: NetworkPolicy default/a occurs twice",
		strings.Replace(np, "/v1", "/v1beta1", 1):                                        `document 1: NetworkPolicy: the apiVersion is "networking.k8s.io/v1beta1": want networking.k8s.io/v1`,
		strings.Replace(np, "apiVersion: networking.k8s.io/v1\n", "", 1):                 `document 1: NetworkPolicy: the apiVersion is "": want networking.k8s.io/v1`,
		strings.Replace(np, "networking.k8s.io/v1", "extensions/v1beta1", 1):             `want networking.k8s.io/v1`,
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: ClusterNetworkPolicy\n":    `want policy.networking.k8s.io/v1alpha2`,
		strings.Replace(np, "networking.k8s.io/v1", "projectcalico.org/v3", 1):           "1 NetworkPolicy",
		strings.Replace(np, "NetworkPolicy", "NetworkPolicyy", 1):                        "1 NetworkPolicyy",
		"a: b\n---\napiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Service\n": "1 without a kind, 2 Service",
		`{"policy":"a","for":"*","in":[]}` + "\n" + `{"policy":"a","for":"*","out":[]}`:  "document 1: object 2: NetworkPolicy default/a occurs twice",
		`{"policy":"a","for":"*","in":[]}` + "\n" + `{"policy":"b","for":"*","in":[]}`:   "",
		"policy: a\nfor: '*'\nin: []\n...\npolicy: b\nfor: '*'\nin: []\n":                `document 1: another object follows the first one: put a line "---" between them`,
		"{policy: a, for: '*', in: []}\n{policy: b, for: '*', in: []}\n":                 "document 1: ",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {newField: 1}\n":          "",
		"apiVersion: v1\nkind: Pod\nkind: Pod\nmetadata: {name: p}\n":                    "occurs twice",
		np + np:                             `document 1: NetworkPolicy: 5:1: the key "apiVersion" occurs twice`,
		strings.Replace(np, "{}", "{", 1):   "document 1: ",
		strings.Replace(np, "spec", "s", 1): `document 1: NetworkPolicy db: unknown field "s"`,
		"- a":                               "document 1: want keys with values", "a": "document 1: want keys with values", "3": "document 1: want keys with values",
		`{"kind": ["a"]}`: "document 1: kind: want text",
		strings.Replace(np, "{}", "{matchLabels: {v: 1}}", 1):           "NetworkPolicy db: spec.podSelector.matchLabels: want text: put the value in quotes",
		strings.Replace(np, "{}", "[]", 1):                              "NetworkPolicy db: spec.podSelector: want keys with values",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: [a]}\n": "Pod p: metadata.labels: want keys with values",
		`{"apiVersion": "v1", "kind": "List", "items": null}`:           "",
	} {
		_, skipped, err := manifest.Parse([]byte(text))
		got := skipped.String()
		if err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "yaml: ") || strings.Contains(got, "\n") {
			t.Errorf("%q\ngives %q\nwant  %q", text, got, want)
		}
	}
}
