package cluster_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead/fairlead/install/cluster"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestNoAnswer checks that a command says why it got no answer of the API server: the login of the kubeconfig's plugin
// expired, the certificate is that of another cluster, or a proxy asks for an hour of patience.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	maintenance := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "maintenance", http.StatusServiceUnavailable)
	})
	plain, secure := httptest.NewServer(maintenance), httptest.NewTLSServer(maintenance)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	plugin := t.TempDir() + "/login"
	must(t, os.WriteFile(plugin, []byte("#!/bin/sh\nexit 3\n"), 0o700))
	for name, c := range map[string]struct {
		config rest.Config
		want   []string
	}{
		"plugin": {
			rest.Config{Host: secure.URL, ExecProvider: &clientcmdapi.ExecConfig{Command: plugin, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}},
			[]string{"the kubeconfig K gives no credentials for " + secure.URL, "exit code 3", "Log in again"},
		},
		"certificate": {rest.Config{Host: secure.URL}, []string{"the kubeconfig K does not trust the certificate of " + secure.URL, "unknown authority"}},
		"maintenance": {rest.Config{Host: plain.URL}, []string{"unable to handle the request"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := cluster.New(&c.config, "K")
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), kerneltest.Slow(4*time.Second))
			defer cancel()
			_, err = client.Version(ctx)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "does not answer") {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}
