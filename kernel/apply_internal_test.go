package kernel

import (
	"slices"
	"testing"
)

// TestSplitDeferred checks that announcing waits until the port forwards.
func TestSplitDeferred(t *testing.T) {
	t.Parallel()
	arp := &Sysctl{In: Container, Link: "eth0", Key: "net/ipv4/conf/eth0/arp_notify", Value: "1"}
	nd := &Sysctl{In: Container, Link: "eth0", Key: "net/ipv6/conf/eth0/ndisc_notify", Value: "1"}
	other := &Sysctl{In: Container, Link: "eth1", Key: "net/ipv4/conf/eth1/arp_notify", Value: "1"}
	plain := &Sysctl{In: Container, Link: "eth0", Key: "net/ipv6/conf/eth0/accept_ra", Value: "0"}
	up := &Up{In: Container, Link: "eth0"}
	announce := &AnnounceAddresses{Port: "veth1", Link: "eth0", MAC: "02:00:00:00:00:01"}
	wait := &WaitForCarrier{Link: "veth1"}
	route := &Route{In: Container, Link: "eth0"}
	for name, c := range map[string]struct{ list, now, last Objects }{
		"with a port":    {Objects{arp, nd, other, plain, up, announce, route}, Objects{other, plain, up, route}, Objects{arp, nd, announce}},
		"without a port": {Objects{arp, nd, up}, Objects{arp, nd, up}, nil},
		"a pair":         {Objects{wait, up, route}, Objects{up, route}, Objects{wait}},
	} {
		t.Run(name, func(t *testing.T) {
			now, last := splitDeferred(c.list)
			if !slices.Equal(now, c.now) || !slices.Equal(last, c.last) {
				t.Errorf("now %v, last %v; want %v and %v", now, last, c.now, c.last)
			}
		})
	}
}
