package agent

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// TestMTUIndex checks that only links to containers count, and that a removed link no longer does.
func TestMTUIndex(t *testing.T) {
	t.Parallel()
	h := newMTUIndex([]*kernel.LinkInfo{{Index: 1, MTU: 65536}, {Index: 2, MTU: 1450, Group: kernel.LinkGroup, Alias: "fairlead pods c eth0"}})
	if h.max() != 1450 || h.update(&kernel.LinkInfo{Index: 3, MTU: 9000}, false) {
		t.Errorf("unmanaged links count: %v", h)
	}
	tall := &kernel.LinkInfo{Index: 3, MTU: 1500, Group: kernel.LinkGroup, Alias: "fairlead pods d eth0"}
	if !h.update(tall, false) || h.max() != 1500 || !h.update(tall, true) || h.max() != 1450 {
		t.Errorf("after adding and removing a link: %v", h)
	}
}

// counting counts reconciliations.
type counting struct {
	recorder
	n int
}

func (c *counting) reconcile(w *desired.State, synced bool) *reconcile.Report {
	c.n++
	return c.recorder.reconcile(w, synced)
}

// TestMTUWrittenAfterFailure checks that the agent writes a new MTU for the plugins again after it could not, and that it
// reconciles the kernel meanwhile.
func TestMTUWrittenAfterFailure(t *testing.T) {
	t.Parallel()
	lib := t.TempDir()
	c := &config.Config{Node: "a", Store: config.Store{File: filepath.Join(lib, "store")}}
	s, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	count := &counting{recorder: recorder{netip.MustParsePrefix("192.0.2.1/24")}}
	a, err := newAgent(Options{Config: c, Store: s, Lib: lib, Run: filepath.Join(lib, "r"), Log: quietLog()}, count)
	if err != nil {
		t.Fatal(err)
	}
	key, value := cluster.NetworkKey(cluster.DefaultNetwork), []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`)
	a.storeCache.Reset(source.DecodeAll([]store.Entry{{Key: key, Value: value, Revision: 1}}), 1)
	dir := a.manager.Dir
	away := dir.Root() + ".away"
	if err := errors.Join(os.Rename(dir.Root(), away), os.WriteFile(dir.Root(), nil, 0o600)); err != nil { // no directory
		t.Fatal(err)
	}
	if again := a.reconcile(t.Context()); again == 0 {
		t.Fatal("the MTU could not be written, and the agent does not try again")
	}
	if a.status.reconcileErr == nil || !strings.Contains(a.status.reconcileErr.Error(), "write the MTU for the plugins") || count.n != 1 {
		t.Errorf("%d reconciliations, and the status has the error %v; want one, and that of the MTU", count.n, a.status.reconcileErr)
	}
	if err := errors.Join(os.Remove(dir.Root()), os.Rename(away, dir.Root()), dir.Write(&local.Network{Name: cluster.DefaultNetwork})); err != nil {
		t.Fatal(err)
	}
	a.reconcile(t.Context())
	if n, err := dir.Read(cluster.DefaultNetwork); err != nil || n.MTU != 1450 {
		t.Errorf("the plugins' file has %+v (%v), want the MTU 1450", n, err)
	}
}
