package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

// A command that nobody told where the store is asks the agent that runs here.
func TestStoreOfAgent(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fl") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &ipamHost{t: t, dir: dir}
	other := filepath.Join(t.TempDir(), "store")
	s, err := store.File(other)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	storetest.Put(t, s, "nodes/there", "{}")
	l, err := address.Listen(local.Open(dir, filepath.Join(dir, "run")).Socket())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		_ = (&address.Server{Handlers: map[string]address.Handler{local.OpStore: func(context.Context, json.RawMessage) (any, error) {
			return &config.Config{Node: "there", Store: config.Store{File: other}}, nil
		}}}).Serve(ctx, l)
		close(done)
	}()
	t.Cleanup(func() { cancel(); <-done })
	for _, row := range []struct {
		want string
		args []string
	}{
		{"there", []string{"node", "list"}},
		{"No nodes", []string{"node", "list", "--store-file", filepath.Join(dir, "mine")}},
		{"there", []string{"__complete", "node", "show", ""}},
	} {
		if code, out, errs := h.fairlead(row.args...); code != 0 || !strings.Contains(out, row.want) {
			t.Errorf("%v: exit code %d: %s%s", row.args, code, out, errs)
		}
	}
}

// What the agent says of itself is all there.
func TestPrintAgent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{stdout: &out}
	must(t, a.printAgent(&agent.State{Node: "n", Ready: true, Bare: true, Cannot: []string{"cannot look after this node's addresses: every block belongs to a node\nand more"}}))
	for _, want := range []string{"node     n\n", "ready    yes\n", "network  there is no default one: make it with \"fairlead network create default ", "but      cannot look after this node's addresses: every block belongs to a node\n         and more\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, out.String())
		}
	}
}
