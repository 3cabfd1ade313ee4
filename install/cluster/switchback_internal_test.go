package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
)

// TestNodeBackAgain checks that a node whose way back to flannel was interrupted can go back by the same command: the
// label is gone then, and the agent's annotation is not.
func TestNodeBackAgain(t *testing.T) {
	t.Parallel()
	const set = `{"metadata": {"name": "kube-flannel-ds", "namespace": "kube-flannel", "annotations": {"fairlead.io/before-switch": "{}"}}}`
	const switched = `{"metadata": {"name": "switched", "labels": {"fairlead.io/pod-network": "fairlead"}, "annotations": {"fairlead.io/node": "{}"}}}`
	answers := map[string]string{
		"/apis/apps/v1/daemonsets": `{"items": [` + set + `]}`,
		"/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel-ds": set,
		"/api/v1/nodes": `{"items": [{"metadata": {"name": "back", "annotations": {"fairlead.io/node": "{}"}}}, ` + switched + `, {"metadata": {"name": "never"}}]}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("labelSelector") == switchLabel {
			fmt.Fprint(w, `{"items": [`+switched+`]}`)
			return
		}
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	defer api.Close()
	c, err := New(&rest.Config{Host: api.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ named, want []string }{
		{nil, []string{"switched"}}, {[]string{"switched"}, []string{"switched"}}, {[]string{"back"}, []string{"back"}}, {[]string{"never"}, nil},
	} {
		f, err := c.formerFlannel(t.Context())
		if err != nil || f == nil || f.handedOver {
			t.Fatal(f, err)
		}
		err = chooseBack(f, x.named)
		if (err == nil) != (x.want != nil) || err == nil && !slices.Equal(f.Nodes, x.want) {
			t.Errorf("%v: %v, %v, want %v", x.named, f.Nodes, err, x.want)
		}
	}
}

// TestHandOver checks in which state of flannel's DaemonSet flanneld uses what the agents have left on the nodes.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for annotations, want := range map[string]string{
		`{}`:                                  "no flannel to go back to",
		`{"fairlead.io/before-switch": "{}"}`: "goes back",
		`{"fairlead.io/handed-over": "true"}`: "has gone back",
		`{"fairlead.io/before-switch": "{}", "fairlead.io/handed-over": "true"}`: "goes back", // switched again
	} {
		set := fmt.Sprintf(`{"metadata": {"name": "kube-flannel-ds", "namespace": "kube-flannel", "annotations": %s}}`, annotations)
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/apis/apps/v1/daemonsets" {
				fmt.Fprint(w, `{"items": [`+set+`]}`)
				return
			}
			fmt.Fprint(w, set)
		}))
		defer api.Close()
		c, err := New(&rest.Config{Host: api.URL}, "x")
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.formerFlannel(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := "no flannel to go back to"
		if f != nil && f.handedOver {
			got = "has gone back"
		} else if f != nil {
			got = "goes back"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", annotations, got, want)
		}
	}
}
