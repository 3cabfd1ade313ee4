package yamlerr_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/internal/yamlerr"
)

// TestKubeconfig verifies that errors about a kubeconfig name no Go types.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config")
	for text, want := range map[string]string{
		"foo":                            `it is not a kubeconfig: want YAML with "apiVersion: v1" and "kind: Config"`,
		"{apiVersion: v1, kind: Pod}":    "it is not a kubeconfig",
		"{apiVersion: v9, kind: Config}": "it is not a kubeconfig",
		"{apiVersion: v1, kind: Config, clusters: 5}":                   "clusters is a number: want a list",
		"{apiVersion: v1, kind: Config, clusters: [{name: 5}]}":         "clusters.name is a number: want text",
		"{apiVersion: v1, kind: Config, clusters: [{cluster: [true]}]}": "clusters.cluster is a list: want keys with values",
		"[": "yaml: line 1",
		"":  "the kubeconfig is empty: want a cluster",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := clientcmd.BuildConfigFromFlags("", file)
		got := yamlerr.Kubeconfig(err).Error()
		if !strings.Contains(got, want) || strings.Contains(got, "Go ") || strings.Contains(got, ".go") || strings.Contains(got, "error loading") {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	_, err := clientcmd.BuildConfigFromFlags("", file+"x")
	if err = yamlerr.Kubeconfig(err); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not os.ErrNotExist", err)
	}
	if _, err := rest.InClusterConfig(); os.Getenv("KUBERNETES_SERVICE_HOST") == "" && !strings.Contains(yamlerr.Kubeconfig(err).Error(), "in-cluster works only in a pod") {
		t.Error(yamlerr.Kubeconfig(err))
	}
}
