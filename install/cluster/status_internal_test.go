package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestNetworkProblems checks that the status has the subnets of the default network, and what is wrong with any network.
func TestNetworkProblems(t *testing.T) {
	t.Parallel()
	const (
		good = `{"metadata": {"name": "default"}, "spec": {"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}]},
			"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
		bad = `{"metadata": {"name": "blue"}, "spec": {"subnets": []},
			"status": {"conditions": [{"type": "Ready", "status": "False", "message": "its vni 7 belongs to network red"}]}}`
	)
	for items, want := range map[string]string{
		good:              "[10.244.0.0/16 podCIDR] []",
		bad + ", " + good: "[10.244.0.0/16 podCIDR] [cluster: network blue: its vni 7 belongs to network red]",
		"":                "[] [cluster: the object Network/default does not exist",
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"items": [%s]}`, items)
		}))
		c, err := New(&rest.Config{Host: api.URL}, "x")
		if err != nil {
			t.Fatal(err)
		}
		out := &Status{}
		err = c.describeNetworks(t.Context(), out)
		var problems []string
		for _, p := range out.Problems {
			problems = append(problems, strings.TrimSpace(p.String()))
		}
		if got := fmt.Sprint(out.Subnets, " ", problems); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v, want %s", items, got, err, want)
		}
		api.Close()
	}
}
