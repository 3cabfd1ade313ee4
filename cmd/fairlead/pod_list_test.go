package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPodGCPreviewWithoutPods verifies that JSON has empty lists and no null.
func TestPodGCPreviewWithoutPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"NETCONFPATH": dir, "CNI_PATH": dir, "FAIRLEAD_RUN": dir, "FAIRLEAD_LIB": dir}
	code, stdout, stderr := call(env, "fairlead", "pod", "gc", "--dry-run", "--json")
	if code != 0 || strings.Join(strings.Fields(stdout), "") != `{"dryRun":true,"keep":[],"remove":[]}` {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}

// TestPodListWithDamagedNote verifies that one damaged note hides no other pod.
func TestPodListWithDamagedNote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"NETCONFPATH": dir, "CNI_PATH": dir, "FAIRLEAD_RUN": dir, "FAIRLEAD_LIB": dir}
	write(t, dir, "pods/bad.json", "{")
	write(t, dir, "pods/good.json", `{"id": "good", "netns": "/run/netns/good", "netnsID": "1:2", "parts": []}`)
	code, stdout, stderr := call(env, "fairlead", "pod", "list")
	if code != exitFailed || !strings.Contains(stdout, "\ngood ") || !strings.Contains(stderr, "the state of pod bad") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}

// TestPodGCWithDamagedNote verifies that one damaged note does not stop the collection, and that its pod is kept.
func TestPodGCWithDamagedNote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"NETCONFPATH": dir, "CNI_PATH": dir, "FAIRLEAD_RUN": dir, "FAIRLEAD_LIB": dir}
	write(t, dir, "pods/bad.json", "{")
	gone := write(t, dir, "pods/gone.json", `{"id": "gone", "netns": "/nowhere", "netnsID": "1:2", "parts": []}`)
	for _, flags := range [][]string{{"--dry-run"}, nil} {
		code, stdout, stderr := call(env, append([]string{"fairlead", "pod", "gc"}, flags...)...)
		if code != exitFailed || !strings.Contains(stderr, "the state of pod bad") || (flags != nil) != strings.Contains(stdout, "would tear down gone") || strings.Contains(stdout, "bad") {
			t.Errorf("%q: code %d, %s%s", flags, code, stdout, stderr)
		}
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("the note of the other pod: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pods", "bad.json")); err != nil {
		t.Error(err)
	}
}
