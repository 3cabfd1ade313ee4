package netlink_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// TestManyRequestsInOneWrite sends more than the default send buffer holds, and receives more acknowledgements than the
// default receive buffer holds.
func TestManyRequestsInOneWrite(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	c, err := netlink.Dial(unix.NETLINK_ROUTE, make([]byte, netlink.BufferSize))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const loopback = 1
	reqs := make([]netlink.Request, 10_000)
	for i := range reqs {
		reqs[i] = netlink.Request{Type: unix.RTM_SETLINK, Flags: unix.NLM_F_ACK, Body: netlink.LinkMessage(loopback, 0, 0)}
	}
	resp, err := c.Do(reqs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resp {
		if r.Err != nil {
			t.Fatalf("request %d: %v", i, r.Err)
		}
	}
}
