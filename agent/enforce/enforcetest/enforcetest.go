// Package enforcetest starts the part of an agent that enforces policy.
package enforcetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Start enforces the policies of a text, in the caller's network namespace, and answers plugins on the agent's socket, until
// the test ends.
func Start(t testing.TB, dir local.Dir, policies string) {
	t.Helper()
	files := t.TempDir()
	thread, err := os.Readlink("/proc/thread-self")
	if err != nil {
		t.Fatal(err)
	}
	l, err := address.Listen(dir.Socket())
	if err == nil {
		err = os.WriteFile(filepath.Join(files, "policies.yaml"), []byte(policies), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := enforce.New(enforce.Options{Directory: files, Node: "here", Attachments: podstate.Open(dir), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	host := filepath.Join("/proc", thread, "ns/net")
	ended := make(chan error, 2)
	go func() { ended <- kerneltest.Inside(host, func() error { return e.Run(ctx) }) }()
	go func() { ended <- (&address.Server{Handlers: e.Handlers()}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		for range cap(ended) {
			<-ended
		}
	})
}
