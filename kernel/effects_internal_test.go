package kernel

import "testing"

// TestPlannedUp checks that a plan knows a link to be up once the plan brings it up, and no other link.
func TestPlannedUp(t *testing.T) {
	t.Parallel()
	up := &Up{In: Container, Link: "eth0"}
	for _, c := range []struct {
		side Side
		name string
		want bool
	}{{Container, "eth0", true}, {Host, "eth0", false}, {Container, "eth1", false}} {
		if l := up.planLink(c.side, c.name, &LinkInfo{Name: c.name}); l.Up != c.want {
			t.Errorf("%v %s is up: %v", c.side, c.name, l.Up)
		}
	}
	if l := up.planLink(Container, "eth0", nil); l != nil {
		t.Errorf("a link that does not exist became %+v", l)
	}
}
