package ipam

import "testing"

// TestRouteNumbers checks the limits of a route's numbers, which are those of the kernel.
func TestRouteNumbers(t *testing.T) {
	t.Parallel()
	zero := 0
	want := map[string]int64{"mtu": 4294967295, "advmss": 4294967295, "priority": 4294967295, "table": 4294967295, "scope": 255}
	list := routeConf{Table: &zero, Scope: &zero}.numbers()
	for _, n := range list {
		if n.most != want[n.key] {
			t.Errorf("%s: at most %d, want %d", n.key, n.most, want[n.key])
		}
	}
	if len(list) != len(want) || len(routeConf{}.numbers()) != 3 {
		t.Errorf("%+v", list)
	}
}
