package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRemoveObjects removes the objects of an earlier agent, and nothing else.
func TestRemoveObjects(t *testing.T) {
	t.Parallel()
	ownHost(t)
	run := filepath.Join(t.TempDir(), "run")
	kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	kerneltest.Run(t, "ip", "link", "set", "up0", "up")
	kerneltest.Run(t, "ip", "address", "add", "192.0.2.1/24", "dev", "up0")
	kerneltest.Run(t, "ip", "route", "add", "10.9.0.0/16", "dev", "up0")
	kerneltest.Run(t, "nft", "add", "table", "inet", "theirs")
	before := kerneltest.Dump(t, "")
	kerneltest.Run(t, "ip", "link", "add", "fl0", "type", "bridge")
	kerneltest.Run(t, "ip", "link", "set", "fl0", "alias", backend.LinkAlias("vxlan default"))
	kerneltest.Run(t, "ip", "route", "add", "10.8.0.0/16", "dev", "up0", "proto", "103")
	kerneltest.Run(t, "nft", "add", "table", "inet", backend.Table)
	kerneltest.Run(t, "nft", "add", "chain", "inet", backend.Table, "x")

	unlock, err := lockHost(run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveObjects(&config.Config{}, run, false); err == nil || !strings.Contains(err.Error(), "another agent runs on this host") {
		t.Errorf("while an agent runs: %v", err)
	}
	unlock()
	mine := kerneltest.Dump(t, "")
	rep, err := RemoveObjects(&config.Config{}, run, true)
	if err != nil || len(rep.Errors) > 0 || rep.Removed != 1 {
		t.Fatalf("hand over: %+v, %v", rep, err)
	}
	for _, l := range kerneltest.DiffLines(strings.Split(mine, "\n"), strings.Split(kerneltest.Dump(t, ""), "\n")) {
		if strings.HasPrefix(l, "+") || strings.Contains(l, "fl0") || strings.Contains(l, "10.8.0.0") {
			t.Errorf("handing over changed %s", l)
		}
	}
	rep, err = RemoveObjects(&config.Config{}, run, false)
	if err != nil || len(rep.Errors) > 0 || rep.Removed != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if diff := kerneltest.Diff(before, kerneltest.Dump(t, "")); diff != "" {
		t.Errorf("differs from before:\n%s", diff)
	}
}
