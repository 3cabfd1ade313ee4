package cluster

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/contrib/kubernetes"
)

// manifestObjects returns the objects of the manifest for the namespace net.
func manifestObjects(t *testing.T) []*Object {
	t.Helper()
	raw, err := kubernetes.Render(kubernetes.Options{Namespace: "net"})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

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
	objects := manifestObjects(t)
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

// TestOtherNamespace checks that neither an installation nor an uninstallation changes anything while the agents run in
// another namespace. The DaemonSet that installs only plugins has the agents' name.
func TestOtherNamespace(t *testing.T) {
	t.Parallel()
	const set = `{"metadata": {"name": "fairlead", "namespace": %q, "uid": "1"}, "spec": {"template": {"spec": {"volumes": [{"name": "config"%s}]}}}}`
	sets := ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet:
			t.Errorf("%s %s", r.Method, r.URL.Path)
		case r.URL.Path == "/version":
			fmt.Fprint(w, `{"gitVersion": "v1.37.2", "major": "1", "minor": "37"}`)
		case r.URL.Path == "/apis/apps/v1/daemonsets":
			fmt.Fprintf(w, `{"items": [%s]}`, sets)
		default:
			t.Errorf("GET %s", r.URL.Path)
		}
	}))
	defer api.Close()
	c, err := New(&rest.Config{Host: api.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	manifest := kubernetes.Options{Namespace: "net"}
	plugins, agents := fmt.Sprintf(set, "kube-system", ""), `, "configMap": {"name": "fairlead"}`
	sets = plugins + "," + fmt.Sprintf(set, "other", agents)
	const want = "the namespace net has no agents of Fairlead, but other has\nType the same command with --namespace other"
	if _, err := c.Plan(t.Context(), Options{Manifest: manifest}); err == nil || err.Error() != want {
		t.Errorf("Plan: %v", err)
	}
	if _, err := c.Uninstall(t.Context(), UninstallOptions{Manifest: manifest, Purge: true}); err == nil || err.Error() != want {
		t.Errorf("Uninstall: %v", err)
	}
	for _, sets = range []string{plugins, plugins + "," + fmt.Sprintf(set, "other", agents) + "," + fmt.Sprintf(set, "net", agents)} {
		if err := c.checkNamespace(t.Context(), "net"); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestNamespaceOfOthers checks that a namespace that somebody else created does not get the label by which --purge knows
// what to delete.
func TestNamespaceOfOthers(t *testing.T) {
	t.Parallel()
	for labels, want := range map[string]bool{"{}": false, `{"app.kubernetes.io/name": "fairlead"}`: true, "": true} {
		labelled := false
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPatch {
				body, _ := io.ReadAll(r.Body)
				labelled = strings.Contains(string(body), nameLabel)
				if !strings.Contains(string(body), "pod-security.kubernetes.io/enforce") {
					t.Errorf("%s", body)
				}
			}
			if labels == "" && r.Method == http.MethodGet {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
				return
			}
			fmt.Fprintf(w, `{"kind": "Namespace", "metadata": {"name": "net", "labels": %s}}`, cmp.Or(labels, "{}"))
		}))
		defer api.Close()
		c, err := New(&rest.Config{Host: api.URL}, "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context(), manifestObjects(t)[:1], false, func(Change) {}); err != nil || labelled != want {
			t.Errorf("labels %q: the label is set: %v, want %v, %v", labels, labelled, want, err)
		}
	}
}

// TestReleaseNamespace checks that a namespace that somebody else created loses the labels that Fairlead set, and that
// Fairlead's own keeps them.
func TestReleaseNamespace(t *testing.T) {
	t.Parallel()
	for labels, want := range map[string]string{
		`{"pod-security.kubernetes.io/enforce": "privileged"}`: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"net"}}`,
		`{"app.kubernetes.io/name": "fairlead"}`:               "",
	} {
		applied := ""
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/namespaces/net":
				body, _ := io.ReadAll(r.Body)
				applied = string(body)
			case r.URL.Path != "/api/v1/namespaces/net":
				fmt.Fprint(w, `{"items": []}`)
				return
			}
			fmt.Fprintf(w, `{"kind": "Namespace", "metadata": {"name": "net", "labels": %s}}`, labels)
		}))
		defer api.Close()
		c, err := New(&rest.Config{Host: api.URL}, "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, dry := range []bool{true, false} {
			o := UninstallOptions{Manifest: kubernetes.Options{Namespace: "net"}, DryRun: dry}
			if err := c.removeObjects(t.Context(), manifestObjects(t)[:1], o, &Uninstalled{}); err != nil || dry && applied != "" {
				t.Errorf("labels %s, dry run %v: %v, %s", labels, dry, err, applied)
			}
		}
		if applied != want {
			t.Errorf("labels %s: applied %s, want %s", labels, applied, want)
		}
	}
}
