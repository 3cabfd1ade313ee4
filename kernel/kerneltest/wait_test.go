package kerneltest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestAddrsInUse checks that the wait goes on while an address has no local route, which is what the kernel adds last.
func TestAddrsInUse(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	ns := kerneltest.Netns(t)
	for _, c := range []string{
		"ip link add eth0 type veth peer name eth1", "ip link set eth1 up", "ip link set eth0 up", "ip addr add fd00::2/64 dev eth0 nodad",
	} {
		kerneltest.In(t, ns, strings.Fields(c)...)
	}
	kerneltest.AddrsInUse(t, ns)
	kerneltest.In(t, ns, "ip", "-6", "route", "del", "local", "fd00::2", "dev", "eth0", "table", "local")
	used := make(chan struct{})
	go func() {
		defer close(used)
		kerneltest.AddrsInUse(t, ns)
	}()
	select {
	case <-used:
		t.Error("an address without its local route counts as used")
	case <-time.After(300 * time.Millisecond):
	}
	kerneltest.In(t, ns, "ip", "-6", "route", "add", "local", "fd00::2", "dev", "eth0", "table", "local")
	<-used
}
