package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/install/cluster/node"
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
