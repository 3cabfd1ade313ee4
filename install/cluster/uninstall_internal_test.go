package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/contrib/kubernetes"
)

// TestUninstallWithoutList checks which list the nodes remove if an administrator has removed it from the agents'
// configuration: not the whole directory of the lists.
func TestUninstallWithoutList(t *testing.T) {
	t.Parallel()
	conf := ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.URL.Path, "/configmaps/") {
			fmt.Fprintf(w, `{"metadata": {"name": "fairlead"}, "data": {"agent.yaml": %q}}`, conf)
			return
		}
		fmt.Fprint(w, `{"metadata": {"name": "fairlead"}}`)
	}))
	defer api.Close()
	c, err := New(&rest.Config{Host: api.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kubernetes.Render(kubernetes.Options{Namespace: "net"})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"cni: {file: /etc/cni/net.d/05-mine.conflist}": "05-mine.conflist",
		"grace: 5m": "10-fairlead.conflist",
		"":          "10-fairlead.conflist",
	} {
		conf = text
		if _, file, err := c.agentsOf(t.Context(), objects); file != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", text, file, err, want)
		}
	}
}

// TestNamespaceInUse checks that --purge keeps a namespace in which somebody else has more than pods.
func TestNamespaceInUse(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"":                        "",
		"/persistentvolumeclaims": "it has persistentvolumeclaims, such as data",
		"/secrets":                "it has secrets, such as data",
		"/services":               "it has services, such as data",
		"forbidden":               "you may not list its secrets, so it may have some",
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			items := []string{}
			if path == "forbidden" && strings.HasSuffix(r.URL.Path, "/secrets") {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`)
				return
			}
			if strings.HasSuffix(r.URL.Path, "/secrets") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
				t.Errorf("%s: the content of Secrets was requested: %s", path, r.Header.Get("Accept"))
			}
			if path != "" && r.URL.Path == "/api/v1/namespaces/net"+path {
				items = append(items, `{"metadata": {"name": "data"}}`)
			}
			fmt.Fprintf(w, `{"items": [%s]}`, strings.Join(items, ", "))
		}))
		defer api.Close()
		c, err := New(&rest.Config{Host: api.URL}, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.namespaceInUse(t.Context(), "net"); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}
