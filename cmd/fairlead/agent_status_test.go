package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// A command without a store in its flags asks the agent of this host for its store.
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
	empty := filepath.Join(t.TempDir(), "empty")
	e, err := store.File(empty)
	must(t, err)
	must(t, e.Close())
	absent := filepath.Join(t.TempDir(), "absent")
	for _, args := range [][]string{{"node", "list"}, {"node", "remove", "x"}, {"network", "show", "x"}, {"ipam", "show"}, {"map"}} {
		code, _, errs := h.fairlead(append(args, "--store-file", absent)...)
		if files, err := filepath.Glob(absent + "*"); code != 1 || !strings.Contains(errs, "there is no store in the file "+absent+"\n") || err != nil || len(files) > 0 {
			t.Errorf("%v with a store that does not exist: exit code %d, created %v: %s", args, code, files, errs)
		}
	}
	for _, row := range []struct {
		want string
		args []string
	}{
		{"there", []string{"node", "list"}},
		{noNodes, []string{"node", "list", "--store-file", empty}},
		{noNodes, []string{"map", "--store-file", empty}},
		{"there", []string{"__complete", "node", "show", ""}},
	} {
		if code, out, errs := h.fairlead(row.args...); code != 0 || !strings.Contains(out, row.want) {
			t.Errorf("%v: exit code %d: %s%s", row.args, code, out, errs)
		}
	}
}

// TestStoreOfAgentUnknown verifies that a command does not read the default store if the host has an agent that does
// not say which store it has.
func TestStoreOfAgentUnknown(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "fl") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &ipamHost{t: t, dir: dir}
	policies := filepath.Join(dir, "policies.yaml")
	must(t, os.WriteFile(policies, []byte("policy: db\nfor: app=db\nin: []\n"), 0o644))
	refused := func(why string) {
		t.Helper()
		for _, args := range [][]string{{"network", "list"}, {"policy", "apply", "-f", policies}} {
			code, out, errs := h.fairlead(args...)
			if code != 1 || !strings.Contains(errs, why) || !strings.Contains(errs, "--store-etcd-endpoints") {
				t.Errorf("%v: exit code %d, want 1 and %q: %s%s", args, code, why, out, errs)
			}
		}
		if _, err := os.Stat(config.DefaultStore(func(string) string { return dir })); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the default store exists (%v)", err)
		}
	}
	for _, line := range []string{"network list", "node list", "ipam show", "policy list", "map"} {
		code, out, errs := h.fairlead(strings.Fields(line)...)
		if code != 1 || !strings.Contains(errs, "there is no store on this host: no agent has run here\nName the store with --store-kubernetes-kubeconfig") {
			t.Errorf("%s without an agent: exit code %d: %s%s", line, code, out, errs)
		}
	}
	must(t, os.Mkdir(filepath.Join(dir, "run"), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: local.Open(dir, filepath.Join(dir, "run")).Socket()})
	must(t, err)
	refused("does not answer") // nobody accepts the connection
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
	kerneltest.Until(t, func() bool { // a process that is being started still has a copy of the socket
		_, err := net.Dial("unix", l.Addr().String())
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	refused("connection refused")
}

// TestPrintAgent verifies that the table has everything that the agent reports.
func TestPrintAgent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{stdout: &out}
	must(t, a.printAgent(&agent.State{Node: "n", Ready: true, NoDefaultNetwork: true, Failures: []string{"cannot manage this node's addresses: every block belongs to a node\nand more"}, Unreachable: []string{"node b: it has no address"}}))
	for _, want := range []string{"node         n\n", "ready        yes\n", "network      there is no default network: create it with \"fairlead network create default ", "failed       cannot manage this node's addresses: every block belongs to a node\n             and more\n", "unreachable  node b: it has no address\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, out.String())
		}
	}
}
