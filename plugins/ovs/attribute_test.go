package ovs

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestAttributes changes every attribute of a switch's objects in a real database, one at a time. Compare must report
// exactly that, and Repair must restore it. See TestEveryAttribute of package kernel.
func TestAttributes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, change, want string }{
		{"OVSBridge.Name", "del-br ovs0", "add-br ovs0|add-port ovs0 vx42|add-port ovs0 veth1"},
		{"OVSTunnel.Name", "del-port vx42", "add-port ovs0 vx42 tag=9 trunks=10-12 vlan_mode=native-untagged protected=true -- set interface vx42 type=vxlan options:key=42 options:remote_ip=192.0.2.7 options:local_ip=192.0.2.1 options:dst_port=4790: is missing"},
		{"OVSTunnel.Bridge", "add-br ovs7 -- set bridge ovs7 datapath_type=netdev -- del-port vx42 -- add-port ovs7 vx42 tag=9 trunks=10,11,12 vlan_mode=native-untagged -- set port vx42 protected=true external_ids:fairlead-network=n -- " +
			"set interface vx42 type=vxlan options:key=42 options:remote_ip=192.0.2.7 options:local_ip=192.0.2.1 options:dst_port=4790", "is on another bridge"},
		{"OVSTunnel.VNI", "set interface vx42 options:key=43", `options:key is "43", want "42"`},
		{"OVSTunnel.Remote", "set interface vx42 options:remote_ip=192.0.2.8", `options:remote_ip is "192.0.2.8", want "192.0.2.7"`},
		{"OVSTunnel.Local", "set interface vx42 options:local_ip=192.0.2.2", `options:local_ip is "192.0.2.2", want "192.0.2.1"`},
		{"OVSTunnel.Port", "set interface vx42 options:dst_port=4791", `options:dst_port is "4791", want "4790"`},
		{"OVSTunnel.VLAN", "set port vx42 tag=8", "tag is 8, want 9"},
		{"OVSTunnel.VLAN", "set port vx42 trunks=10", "trunks is 10, want [10 11 12]"},
		{"OVSTunnel.Protected", "set port vx42 protected=false", "protected is false, want true"},
		{"OVSPort.Name", "del-port veth1", "add-port ovs0 veth1 tag=10 -- set interface veth1 ofport_request=77 external_ids:iface-id=here: is missing"},
		{"OVSPort.Bridge", "add-br ovs7 -- set bridge ovs7 datapath_type=netdev -- del-port veth1 -- add-port ovs7 veth1 tag=10 -- " +
			"set port veth1 external_ids:fairlead-network=n external_ids:fairlead-container=c external_ids:fairlead-interface=eth0 -- set interface veth1 ofport_request=77 external_ids:iface-id=here " +
			"external_ids:fairlead-network=n external_ids:fairlead-container=c external_ids:fairlead-interface=eth0", "is on another bridge"},
		{"OVSPort.VLAN", "set port veth1 tag=11", "tag is 11, want 10"},
		{"OVSPort.VLAN", "set port veth1 trunks=5", "trunks is 5, want []"},
		{"OVSPort.OFPort", "set interface veth1 ofport_request=78", "ofport_request is 78, want 77"},
		{"OVSPort.IfaceID", "set interface veth1 external_ids:iface-id=there", `external_ids:iface-id is "there", want "here"`},
		{"OVSPort.Owner", "set port veth1 external_ids:fairlead-container=x", `external_ids:fairlead-container is "x", want "c"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			changeAndRepair(t, switchObjects, c.change, c.want)
		})
	}
}

// TestAttributesOfPlainTunnel sets the attributes that a tunnel without a local address and a port does not have.
func TestAttributesOfPlainTunnel(t *testing.T) {
	t.Parallel()
	objects := func(db string) kernel.Objects {
		list := switchObjects(db)
		tunnel := list[1].(*kernel.OVSTunnel)
		tunnel.Local, tunnel.Port = "", 0
		return list
	}
	for change, want := range map[string]string{
		"set interface vx42 options:local_ip=192.0.2.1": `options:local_ip is "192.0.2.1", want none`,
		"set interface vx42 options:dst_port=4791":      `options:dst_port is "4791", want none`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			changeAndRepair(t, objects, change, want)
		})
	}
}

// changeAndRepair creates objects in a real database and changes one. Compare must report what is wanted, and Repair
// must restore it.
func changeAndRepair(t *testing.T, objects func(db string) kernel.Objects, change, want string) {
	t.Helper()
	kerneltest.Host(t)
	sw := ovstest.New(t)
	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "lo")
	e := testEngine(t)
	list := objects("unix:" + sw.Socket())
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Fatalf("after creating it: %v %v", d, err)
	}
	sw.Ctl(strings.Fields(change)...)
	d, err := e.Compare(list)
	differences := strings.Split(want, "|")
	if err != nil || len(d) != len(differences) {
		t.Fatalf("%v %v\nwant %d differences", err, d, len(differences))
	}
	for i, w := range differences {
		if !strings.Contains(d[i].String(), w) {
			t.Errorf("%s\nwant %s", d[i], w)
		}
	}
	done, err := e.Repair(list)
	for _, r := range done {
		if r.Err != nil {
			t.Errorf("repair of %s: %v", r, r.Err)
		}
	}
	if d, err2 := e.Compare(list); err != nil || err2 != nil || len(d) > 0 {
		t.Errorf("after a repair: %v, %v, %v", err, err2, d)
	}
}

func testEngine(t *testing.T) *kernel.Engine {
	ns, err := netns.Open(kerneltest.Netns(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := Switch("n")
	e.UseSwitch(s)
	t.Cleanup(func() { s.Close(); e.Close() })
	return e
}

func switchObjects(db string) kernel.Objects {
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	return kernel.Objects{
		&kernel.OVSBridge{Name: "ovs0", DB: db, MAC: "02:00:00:00:00:0b", Datapath: userSpace},
		&kernel.OVSTunnel{Name: "vx42", DB: db, Bridge: "ovs0", Network: "n", VNI: 42, Remote: "192.0.2.7", Local: "192.0.2.1", Port: 4790,
			VLAN: kernel.VLANs{Tag: 9, Trunks: "10-12"}, Protected: true},
		&kernel.Veth{Name: "veth1", MAC: "02:00:00:00:00:01", PeerSide: kernel.Container, PeerName: "eth0", PeerMAC: "02:00:00:00:00:02", SwitchPort: true, OwnerTag: owner.Tag()},
		&kernel.OVSPort{Name: "veth1", DB: db, Bridge: "ovs0", Peer: "eth0", VLAN: kernel.VLANs{Tag: 10}, OFPort: 77, IfaceID: "here", Owner: owner},
		&kernel.Up{Link: "veth1"},
	}
}
