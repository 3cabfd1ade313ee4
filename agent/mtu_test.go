package agent

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
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
