package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/install/cluster/node"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestCleanKeepsPluginsInUse removes Fairlead from a node with a container. What stays must delete the container, although
// the list is fused and has a plugin without a part in the record. The second run removes the rest.
func TestCleanKeepsPluginsInUse(t *testing.T) {
	t.Parallel()
	host(t)
	conf, bin := t.TempDir(), t.TempDir()
	list := func(more string) string {
		return `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"fairlead-chain","plugins":[
			{"type":"ptp","ipam":{"type":"host-local","subnet":"10.88.0.0/24"}},{"type":"portmap","capabilities":{"portMappings":true}}` + more + `]}]}`
	}
	path := write(t, conf, "10-fairlead.conflist", list(""))
	s := &site{t, append(os.Environ(), "NETCONFPATH="+conf, "CNI_PATH="+bin), map[string]string{}}
	s.ok("install", "--bin-dir", bin, "--from", from(t))
	kerneltest.Run(t, "ip", "netns", "add", "web")
	s.ok("add", "n", "web")
	write(t, conf, "10-fairlead.conflist", list(`,{"type":"fairlead-policy"}`)) // as the agent writes it with policy
	clean := func() (r node.Report) {
		must(t, json.Unmarshal([]byte(s.ok("kubernetes", "clean", "--list", path, "--bin-dir", bin)), &r))
		return r
	}
	if r := clean(); len(r.Errors) > 0 || len(r.Attachments) != 1 {
		t.Fatalf("with a container: %+v", r)
	}
	if _, err := os.Lstat(filepath.Join(bin, "macvlan")); !os.IsNotExist(err) {
		t.Errorf("a plugin that no container uses: %v", err)
	}
	s.ok("del", filepath.Join(conf, node.Retired), "web")
	r := clean()
	if len(r.Errors) > 0 || len(r.Attachments) > 0 {
		t.Errorf("without containers: %+v", r)
	}
	left, err := os.ReadDir(bin)
	must(t, err)
	if slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() != ".fairlead" }) {
		t.Errorf("left: %v", left)
	}
}

// TestCleanKeepsListOfPods removes Fairlead from a node with a pod that replaced its default network. No attachment has the
// network of the agent's list, but the runtime needs the list to delete the pod, and the plugins of the pod's networks.
func TestCleanKeepsListOfPods(t *testing.T) {
	t.Parallel()
	host(t)
	conf, bin := t.TempDir(), t.TempDir()
	path := write(t, conf, "10-fairlead.conflist", `{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"fairlead-pod","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.88.0.0/24"}}]}]}`)
	s := &site{t, append(os.Environ(), "NETCONFPATH="+conf, "CNI_PATH="+bin), map[string]string{}}
	s.ok("install", "--bin-dir", bin, "--from", from(t))
	state := podstate.Open(local.Open("", ""))
	boot, err := bootid.Read()
	must(t, err)
	must(t, state.WritePod(&podstate.Pod{ContainerID: "c0", IfName: "eth0", Network: "pods", Boot: "an earlier one"}))
	must(t, state.WritePod(&podstate.Pod{ContainerID: "c1", Boot: boot, IfName: "eth0", Network: "pods", Namespace: "shop", Name: "db-0", Attached: true, Attachments: []podstate.Attachment{
		{Namespace: "shop", Name: "fixed", IfName: "eth0", Default: true, Config: []byte(`{"cniVersion":"1.0.0","name":"fixed","plugins":[{"type":"macvlan","ipam":{"type":"static"}}]}`)},
	}}))
	clean := func() (r node.Report) {
		must(t, json.Unmarshal([]byte(s.ok("kubernetes", "clean", "--list", path, "--bin-dir", bin)), &r))
		return r
	}
	if r := clean(); len(r.Errors) > 0 || !slices.Equal(r.Attachments, []string{"pods c1 eth0"}) {
		t.Errorf("with a pod: %+v", r)
	}
	for _, file := range []string{filepath.Join(conf, node.Retired), filepath.Join(bin, "macvlan"), filepath.Join(bin, "static"), filepath.Join(bin, "fairlead-pod")} {
		if _, err := os.Lstat(file); err != nil {
			t.Errorf("the pod needs it: %v", err)
		}
	}
	must(t, state.RemovePod("c1", "eth0"))
	if r := clean(); len(r.Errors) > 0 || len(r.Attachments) > 0 {
		t.Errorf("without the pod: %+v", r)
	}
	if _, err := os.Lstat(filepath.Join(conf, node.Retired)); !os.IsNotExist(err) {
		t.Errorf("the list is left: %v", err)
	}
}
