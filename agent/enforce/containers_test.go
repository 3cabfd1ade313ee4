package enforce

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
)

// TestContainerReplaced checks that a container whose name another one had counts from its ADD, while the attachment of the
// other one exists.
func TestContainerReplaced(t *testing.T) {
	for _, ids := range [][2]string{{"a", "b"}, {"b", "a"}} {
		all, c := containers{}, policy.New("n1")
		for i, id := range ids {
			a := &podstate.Endpoint{
				ContainerID: id, IfName: "eth0", Namespace: "shop", Name: "db", UID: "uid of " + id, Labels: map[string]string{"app": id},
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Uptime: time.Duration(i + 1),
			}
			claim := claimID(a.Key())
			for _, change := range all.set(claim, a, "n1") {
				change(c)
			}
			c.SetClaim(claim, &policy.Claim{Namespace: a.Namespace, Name: a.Name, UID: a.UID, Addresses: a.Addresses, Since: a.Uptime})
			if waiting := c.Waiting(claim); waiting != "" {
				t.Errorf("containers %v: the ADD of %s waits for %s", ids, id, waiting)
			}
			if e := c.Endpoints()[0]; e.Labels["app"] != id {
				t.Errorf("containers %v: %s has the labels %v", ids, id, e.Labels)
			}
		}
	}
}

// TestLabelsOfAttachments checks that a container has the labels of all its attachments: a second attachment with other
// labels must not take it out of policy.
func TestLabelsOfAttachments(t *testing.T) {
	all, c := containers{}, policy.New("n1")
	attach := func(ifName string, uptime time.Duration, labels map[string]string) {
		a := &podstate.Endpoint{ContainerID: "a", IfName: ifName, Namespace: "shop", Name: "db", Labels: labels, Uptime: uptime}
		for _, change := range all.set(claimID(a.Key()), a, "n1") {
			change(c)
		}
	}
	attach("eth0", 1, map[string]string{"app": "db"})
	attach("eth1", 2, map[string]string{"net": "b"})
	attach("eth2", 3, nil)
	if e, want := c.Endpoints()[0], (map[string]string{"app": "db", "net": "b"}); !maps.Equal(e.Labels, want) {
		t.Errorf("labels %v, want %v", e.Labels, want)
	}
}
