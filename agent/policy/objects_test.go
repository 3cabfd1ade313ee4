package policy

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// TestForgedAnnotation checks that a pod does not get the address of another one by an annotation, also if it is newer.
func TestForgedAnnotation(t *testing.T) {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.CreationTimestamp.Time = "shop", "forged", time.Unix(9, 0)
	p.Annotations = map[string]string{networkStatus: `[{"ips": ["10.0.0.4"]}, {"ips": ["10.0.0.2", "10.0.9.1"]}]`}
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.4"}}
	w := shop()
	w.Endpoints = append(w.Endpoints, FromPod(p))
	c := w.compiler("n1")
	for addr, want := range map[string]string{"10.0.0.2": "shop/db", "10.0.0.4": "shop/forged", "10.0.9.1": "shop/forged"} {
		if got, _ := c.Name(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s belongs to %q, want %q", addr, got, want)
		}
	}
	c.DeleteEndpoint("shop", "db")
	if got, _ := c.Name(netip.MustParseAddr("10.0.0.2")); got != "shop/forged" {
		t.Errorf("nobody else has it, and it belongs to %q", got)
	}
}

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
