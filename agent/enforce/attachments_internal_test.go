package enforce

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestAttachmentsReadAgain verifies that policy does not count as in force while the attachments of the node, or one of
// them, cannot be read, and that the agent reads them again although nothing has changed.
func TestAttachmentsReadAgain(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	state := local.Open(t.TempDir(), t.TempDir())
	e := newEnforcer(Options{Node: "n1", Attachments: podstate.Open(state), Log: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	r := &attachmentReader{Enforcer: e}
	dir := filepath.Join(state.Root(), "endpoints")
	step := func(what string, listed, complete bool, messages int) {
		t.Helper()
		for range 2 { // it logs each problem once
			if l, c := r.read(); l != listed || c != complete {
				t.Errorf("%s: listed %v, complete %v", what, l, c)
			}
		}
		if problem := strings.Contains(e.Problem(), "cannot read all attachments"); problem == complete {
			t.Errorf("%s: the problem is %q", what, e.Problem())
		}
		if n := strings.Count(log.String(), "\n"); n != messages {
			t.Errorf("%s: %d messages, want %d:\n%s", what, n, messages, log.String())
		}
	}
	step("no directory", true, true, 0)
	must(t, os.MkdirAll(state.Root(), 0o755))
	must(t, os.WriteFile(dir, nil, 0o600)) // it cannot be listed
	step("a file in the directory's place", false, false, 1)
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o755))
	file := filepath.Join(dir, "c:eth0.json")
	must(t, os.WriteFile(file, []byte("{"), 0o600))
	step("a damaged file", true, false, 2)
	must(t, os.WriteFile(file, []byte(`{"version":1,"containerID":"c","ifName":"eth0"}`), 0o600))
	step("a valid file", true, true, 2)
}

// TestFollowAttachmentsWaits verifies that policy waits for the list of the node's attachments.
func TestFollowAttachmentsWaits(t *testing.T) {
	t.Parallel()
	state := local.Open(t.TempDir(), t.TempDir())
	e := newEnforcer(Options{Node: "n1", Attachments: podstate.Open(state), Log: slog.New(slog.DiscardHandler)}, nil)
	e.missing[attachmentFiles] = true
	e.activate()
	dir := filepath.Join(state.Root(), "endpoints")
	must(t, os.MkdirAll(state.Root(), 0o755))
	must(t, os.WriteFile(dir, nil, 0o600))
	go e.followAttachments(t.Context())
	missing := func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.missing[attachmentFiles] }
	kerneltest.Until(t, func() bool { return strings.Contains(e.Problem(), "cannot read all attachments") })
	if !missing() {
		t.Error("policy counts as complete, although the attachments are unknown")
	}
	must(t, os.Remove(dir))
	kerneltest.Until(t, func() bool { return !missing() })
}
