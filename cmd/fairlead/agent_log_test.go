package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/fairlead/fairlead/attach"
)

// TestLogOfLibraries checks that what the client of the Kubernetes API logs has the format of the agent's log. The client's
// logger is global, so this test is not parallel.
func TestLogOfLibraries(t *testing.T) {
	defer klog.ClearLogger()
	dir := t.TempDir()
	noDirectory := write(t, dir, "run", "")
	env := map[string]string{"FAIRLEAD_LIB": dir, attach.RootVariable: noDirectory, "GOGC": "100"}
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, getenv: func(k string) string { return env[k] }}
	// The agent ends because it has no directory for its runtime state.
	if code := run(context.Background(), a, []string{"fairlead", "agent", "--node", "a", "--store-file", dir + "/store.db", "--log-format", "json"}); code == 0 {
		t.Fatal("the agent ran")
	}
	errs.Reset()
	klog.ErrorS(nil, "Unexpected error when reading response body")
	line := struct{ Level, Msg string }{}
	if err := json.Unmarshal([]byte(strings.TrimSpace(errs.String())), &line); err != nil || line.Level != "ERROR" || !strings.HasPrefix(line.Msg, "Unexpected") {
		t.Errorf("the log has %q, %v", errs.String(), err)
	}
}
