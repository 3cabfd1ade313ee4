package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestLocalAddrs checks that an address of two links is listed once.
func TestLocalAddrs(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	for _, c := range []string{
		"ip link add a0 type veth peer name b0", "ip addr add 192.0.2.1/24 dev a0", "ip addr add 192.0.2.1/24 dev b0",
		"ip addr add 192.0.2.2/24 dev a0", "ip addr add 198.51.100.1 peer 198.51.100.2 dev a0",
	} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
	e, err := Open(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	got, err := e.localAddrs(IPv4)
	slices.SortFunc(got, netip.Addr.Compare)
	if want := "[127.0.0.1 192.0.2.1 192.0.2.2 198.51.100.1]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
