package address

import (
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestMTUSurvivesRestart checks that a restarted agent, which does not know the MTU yet, keeps the one in the network's
// file, and that WriteMTU changes it at once.
func TestMTUSurvivesRestart(t *testing.T) {
	t.Parallel()
	b := newBed(t, flannelNet)
	var mtu atomic.Int64
	mtu.Store(1400)
	m, _ := b.node("a", func(o *Options) { o.MTU = func(string) int { return int(mtu.Load()) } })
	written := func() int {
		n, err := m.Dir.Read("default")
		if err != nil {
			return -1
		}
		return n.MTU
	}
	kerneltest.Until(t, func() bool { return written() == 1400 })
	mtu.Store(0) // as after a restart
	must(t, m.writeFiles())
	if got := written(); got != 1400 {
		t.Errorf("without an MTU the file has %d, want the former 1400", got)
	}
	mtu.Store(1390)
	must(t, m.WriteMTU())
	if got := written(); got != 1390 {
		t.Errorf("the file has %d, want 1390", got)
	}
}
