package main

import (
	"slices"
	"testing"
)

// TestKubeconfigs checks which files a command reads: empty names in KUBECONFIG do not count. An empty path would select
// the file store.
func TestKubeconfigs(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string][]string{
		"": {"/home/u/.kube/config"}, ":": {"/home/u/.kube/config"}, "/a": {"/a"}, ":/a": {"/a"}, "/a::/b:": {"/a", "/b"},
	} {
		a := &app{getenv: func(name string) string { return map[string]string{"KUBECONFIG": variable, "HOME": "/home/u"}[name] }}
		if got := a.kubeconfigs(); !slices.Equal(got, want) {
			t.Errorf("KUBECONFIG=%s: %q, want %q", variable, got, want)
		}
	}
}
