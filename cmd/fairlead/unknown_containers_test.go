package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/clustermap"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

// withoutEndpoints is a store that keeps no endpoints, as the Kubernetes API does.
type withoutEndpoints struct{ store.Store }

func (withoutEndpoints) KeepsNoEndpoints() { (*kube.Store)(nil).KeepsNoEndpoints() }

// TestUnknownContainers checks that a cluster whose store keeps no endpoints does not seem to have no containers.
func TestUnknownContainers(t *testing.T) {
	t.Parallel()
	s := withoutEndpoints{newIPAMHost(t).s}
	storetest.Put(t, s, "networks/red", `{"subnets": [{"cidr": "10.9.0.0/16"}]}`)
	storetest.Put(t, s, "nodes/n2", `{"id": "2", "addresses": ["192.0.2.2/24"]}`)
	storetest.Put(t, s, "blocks/red/10.9.1.0-26", `{"node": "n2", "subnet": "10.9.0.0/16"}`)
	storetest.Put(t, s, "blocks/red/10.9.2.0-26", `{"node": "n1", "subnet": "10.9.0.0/16"}`)
	snap, _, err := admin.Snapshot(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	use, err := admin.UseOf(snap, "n1", &address.LocalState{}, "red")
	if err != nil {
		t.Fatal(err)
	}
	details, err := admin.DescribeNode(snap, "n2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		print      func(*app) error
		text, json string
	}{
		{"node list", func(a *app) error { return a.printNodes(admin.Nodes(snap)) }, "n2 away 192.0.2.2 red:10.9.1.0/26 - -", `"endpoints":null`},
		{"node show", func(a *app) error { return a.printNodeDetails(details) }, "container -", `"endpoints":null}`},
		{"ipam show", func(a *app) error { return a.printIPAM(use) }, "10.9.1.0/26 n2 - of 61", `"used":null`},
		{"ipam show, of this node", func(a *app) error { return a.printIPAM(use) }, "10.9.2.0/26 n1 0 of 61", `"used":0`},
	} {
		text, asJSON := &bytes.Buffer{}, &bytes.Buffer{}
		if err := c.print(&app{stdout: text}); err != nil {
			t.Fatal(err)
		}
		if err := c.print(&app{stdout: asJSON, format: formatJSON}); err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, asJSON.Bytes()); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(text.String()), " ")
		if !strings.Contains(words, c.text) || !strings.Contains(compact.String(), c.json) {
			t.Errorf("%s: got\n%s%s\nwant %q and %q", c.name, text, &compact, c.text, c.json)
		}
	}
	var text bytes.Buffer
	m := clustermap.Of(snap)
	if err := (&app{stdout: &text}).printMap(m); err != nil {
		t.Fatal(err)
	}
	if words := strings.Join(strings.Fields(text.String()), " "); !strings.Contains(words, "n2 away 192.0.2.2 10.9.1.0/26 - ") || m.Nodes[len(m.Nodes)-1].Containers != nil {
		t.Errorf("map: got\n%s", &text)
	}
	want := "node n2 has block 10.9.1.0/26: delete the containers, then type: fairlead ipam release 10.9.1.0/26 --network red"
	if err := admin.DeleteNetwork(t.Context(), s, "red", true); !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("network delete: got %v, want %q", err, want)
	}
}
