package enforce

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
)

// TestDirectAttachment checks that the agent reports an interface whose packets the host does not forward, once, and until it
// has gone.
func TestDirectAttachment(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"), pod("db", "u2"))
	for id, plugin := range map[string]string{"u1": "macvlan", "u2": "ptp"} {
		r := attach.Open("").New("pods", id, "eth0", "/proc/self/ns/net")
		r.Parts = []attach.Part{{Plugin: plugin}, {Plugin: "tuning"}}
		place, err := attach.Open("").Reserve(kernel.Owner{Network: "pods", ContainerID: id, IfName: "eth0"})
		must(t, err)
		must(t, attach.Open("").Create(r, place))
		r.Unlock()
		place.Free()
	}
	reported := func(want float64) {
		t.Helper()
		if got := h.e.gauges()[3]; got != want {
			t.Errorf("%v interfaces, want %v", got, want)
		}
	}
	h.must("ADD", "db", "u2", "10.0.0.2")
	reported(0)
	h.must("ADD", "web", "u1", "10.0.0.1")
	reported(1)
	h.webHas("10.0.0.1", true) // for the rules of other pods
	h.e.readAttachments()
	if text := h.log.String(); strings.Count(text, "does not apply") != 1 || !strings.Contains(text, "pod=web") || !strings.Contains(text, "plugin=macvlan") {
		t.Errorf("log: %s", text)
	}
	h.must("ADD", "web", "u1", "10.0.0.2")
	h.webHas("10.0.0.1", false)
	h.webHas("10.0.0.2", false) // it is the pod db's, whose packets the host forwards
	h.is("10.0.0.2", "ingress")
	h.must("DEL", "web", "u1", "10.0.0.2")
	reported(0)
}
