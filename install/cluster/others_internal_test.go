package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestK3sFlannel checks that the flannel inside k3s counts as a pod network, unless the servers of k3s have none.
func TestK3sFlannel(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		``:           "",
		`x`:          "",
		`["agent"]`:  "",
		`["rke2"]`:   "",
		`["server"]`: "the flannel of k3s (node n)",
		`["server", "--flannel-backend", "vxlan", "--disable", "traefik"]`:    "the flannel of k3s (node n)",
		`["server", "--flannel-backend", "none", "--disable-network-policy"]`: "",
		`["--flannel-backend=none", "server"]`:                                "",
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.HasSuffix(r.URL.Path, "/nodes") {
				// flannel's annotation stays when k3s starts without flannel
				fmt.Fprintf(w, `{"items": [{"metadata": {"name": "m"}}, {"metadata": {"name": "n", "annotations":
					{"k3s.io/node-args": %q, "flannel.alpha.coreos.com/backend-type": "vxlan"}}}]}`, arguments)
				return
			}
			fmt.Fprint(w, `{"items": []}`)
		}))
		c, err := New(&rest.Config{Host: api.URL}, "x")
		if err != nil {
			t.Fatal(err)
		}
		others, err := c.Others(t.Context())
		if got := join(others); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", arguments, got, err, want)
		}
		if len(others) > 0 && !strings.Contains(advice(others), "--flannel-backend=none") {
			t.Errorf("the advice is: %s", advice(others))
		}
		api.Close()
	}
}
