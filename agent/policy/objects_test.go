package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// TestNodeProblem reads what agents, other programs and hostile nodes publish.
func TestNodeProblem(t *testing.T) {
	long := strings.Repeat("é", 1000)
	raw, err := json.Marshal(map[string]string{"policyProblem": long})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"": "", "null": "", "[]": "", `{"policyProblem": 5}`: "", `{"id": "x"}`: "", `{"policyProblem": "the kernel is away"}`: "the kernel is away", string(raw): long[:300],
	} {
		n := &corev1.Node{}
		n.Annotations = map[string]string{nodeDocument: text}
		if got := FromNode(n).Problem; got != want || !utf8.ValidString(got) {
			t.Errorf("%.50s: %q, want %q", text, got, want)
		}
	}
	if got := FromNode(&corev1.Node{}).Problem; got != "" {
		t.Errorf("without an annotation: %q", got)
	}
}
