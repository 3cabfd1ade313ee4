package kernel_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// situation is a list of objects, and changes of its objects that other software could make.
type situation struct {
	name    string
	needs   []string
	before  []string // commands; one that begins with "in " runs in the container
	objects func(t *testing.T) kernel.Objects
	changes []change
}

// change changes attributes of an object in the kernel.
type change struct {
	attrs string // "Veth.MAC Veth.MTU": what it changes
	do    []string
	want  []string // the differences that Compare must report, each with a part of its text
	gone  bool     // only an ADD can create the object again
	until string   // a text that Compare must report at last, because the kernel needs time
}

// TestEveryAttribute changes every attribute of every kind of object, one at a time. Compare must report exactly that,
// Repair must restore it, and Compare must then report nothing.
func TestEveryAttribute(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for _, s := range situations() {
		for _, c := range s.changes {
			for _, a := range strings.Fields(c.attrs) {
				covered[a] = true
			}
		}
	}
	exempt := exemptAttributes()
	for _, a := range allAttributes() {
		_, out := exempt[a]
		switch {
		case !covered[a] && !out:
			t.Errorf("%s: no change tests it, and exemptAttributes does not say why", a)
		case covered[a] && out:
			t.Errorf("%s is tested and exempt", a)
		}
		delete(exempt, a)
		delete(covered, a)
	}
	if len(covered)+len(exempt) > 0 {
		t.Errorf("there is no attribute %v, %v", covered, exempt)
	}
	for _, s := range situations() {
		for i, c := range s.changes {
			t.Run(fmt.Sprintf("%s/%d-%s", s.name, i, strings.ReplaceAll(c.attrs, " ", "-")), func(t *testing.T) {
				t.Parallel()
				kerneltest.Needs(t, s.needs...)
				kerneltest.Host(t)
				testChange(t, s, c)
			})
		}
	}
}

// allAttributes returns "Kind.Field" for every field of every kind.
func allAttributes() (out []string) {
	for _, o := range kernel.Prototypes() {
		typ := reflect.TypeOf(o).Elem()
		for i := range typ.NumField() {
			if f := typ.Field(i); f.IsExported() {
				out = append(out, typ.Name()+"."+f.Name)
			}
		}
	}
	return out
}

func testChange(t *testing.T, s situation, c change) {
	netns := kerneltest.Netns(t)
	run := func(commands []string) {
		for _, line := range commands {
			if inside, ok := strings.CutPrefix(line, "in "); ok {
				kerneltest.In(t, netns, "sh", "-ec", inside)
			} else {
				kerneltest.Run(t, "sh", "-ec", line)
			}
		}
	}
	run(s.before)
	list := s.objects(t)
	e := open(t, netns, kernel.Options{Alive: func(tag string) bool { return tag != "" }})
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	e.DiscardUndo()
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Fatalf("after creating it: %v\n%s", err, words(d))
	}
	run(c.do)
	d, err := e.Compare(list)
	for end := time.Now().Add(kerneltest.Slow(10 * time.Second)); c.until != "" && !strings.Contains(words(d), c.until) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		d, err = e.Compare(list)
	}
	if err != nil {
		t.Errorf("compare: %v", err)
	}
	for _, w := range c.want {
		if !slices.ContainsFunc(d, func(d kernel.Difference) bool { return strings.Contains(d.String(), w) }) {
			t.Errorf("no %q is reported", w)
		}
	}
	if len(d) != len(c.want) {
		t.Errorf("%d differences, want %d:\n%s", len(d), len(c.want), words(d))
	}
	done, err := e.Repair(list)
	if err != nil {
		t.Errorf("repair: %v", err)
	}
	for _, r := range done {
		if _, lost := errors.AsType[*kernel.LinkGoneError](r.Err); lost != (c.gone && r.Gone) || r.Err != nil && !lost {
			t.Errorf("repair of %s: %v", r, r.Err)
		}
	}
	if c.gone {
		if !slices.ContainsFunc(done, func(r kernel.RepairResult) bool { return r.Gone }) {
			t.Error("repair restored an interface that only an ADD can create")
		}
		return
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("after a repair: %v\n%s", err, words(d))
	}
}

// exemptAttributes returns the attributes that Compare does not compare, with the reasons.
func exemptAttributes() map[string]string {
	const (
		onADD  = "it tells ADD how to create the object, and leaves no trace in the kernel"
		onDEL  = "it tells DEL how to remove or restore the object"
		shared = "it tells DEL and undo whether to remove the object"
		ovsOwn = "TestAttributes of plugins/ovs changes it in a real database"
	)
	return map[string]string{
		"Bridge.MTU":                 "it is for a new bridge: an existing one keeps its MTU, which the kernel lowers to that of a port",
		"Veth.SwitchPort":            "it only gives the host end no link-local address",
		"Veth.IsShared":              shared,
		"Tap.Context":                "the kernel does not tell the SELinux context of a device",
		"Up.RetryWhileTaken":         onADD,
		"Up.IsShared":                shared,
		"Up.AfterFirewall":           onADD,
		"PortVLAN.IsShared":          shared,
		"HostDevice.PreviousAlias":   onDEL,
		"HostDevice.Hardware":        onDEL,
		"HostDevice.PreviousUp":      onDEL,
		"HostDevice.Network":         onDEL,
		"HostDevice.PreviousAddrs":   onDEL,
		"HostDevice.PreviousRoutes":  onDEL,
		"Addr.DAD":                   onADD,
		"Addr.IsShared":              shared,
		"Addr.RetryWhileTaken":       onADD,
		"Addr.ForceAddress":          onADD,
		"Route.IsShared":             shared,
		"Route.AllowOthers":          onADD,
		"Route.Takeover":             onADD,
		"Route.Proto":                "an identical route that somebody else added does as well, for ADD too",
		"Sysctl.Link":                "it says with which link the key goes away",
		"Sysctl.IfZero":              onADD,
		"ConntrackFlows.Conditional": "TestFlowsOfExcludedClients shows its effect",
		"Sysctl.KeepZero":            "TestForwardingKeepsZero shows that 0 is no difference",
		"Sysctl.Optional":            onADD,
		"Sysctl.IsShared":            shared,
		"Sysctl.Previous":            onDEL,
		"Sysctl.NetnsOnly":           onADD,
		"Sysctl.Stored":              "it is another form of Value",
		"NFT.Network":                "it is part of the comment, by which a rule is found",
		"NFT.ChainGroup":             "it says which parts are removed together",
		"NFT.Addrs":                  "only the reconciler of package reconcile sets it, and compares it",
		"Command.IsShared":           shared,
		"Command.Clear":              onDEL,
		"LinkAttrs.Previous":         onDEL,
		"ZoneSource.Zone":            "scenario firewalld changes it in a firewalld",
		"ZoneSource.Addr":            "scenario firewalld changes it in a firewalld",
		"WireGuard.Program":          "it starts a device in user space",
		"WireGuard.Socket":           "it leads to a device in user space",
		"ExpectedLink.In":            "it waits for the other end of a NetnsVeth, which is compared",
		"ExpectedLink.Link":          "it waits for the other end of a NetnsVeth, which is compared",
		"OVSBridge.Name":             ovsOwn,
		"OVSBridge.DB":               "it leads to the database",
		"OVSBridge.MAC":              "whoever created the bridge decides its address",
		"OVSBridge.Datapath":         ovsOwn,
		"OVSTunnel.Name":             ovsOwn,
		"OVSTunnel.DB":               "it leads to the database",
		"OVSTunnel.Bridge":           ovsOwn,
		"OVSTunnel.Network":          ovsOwn,
		"OVSTunnel.VNI":              ovsOwn,
		"OVSTunnel.Remote":           ovsOwn,
		"OVSTunnel.Local":            ovsOwn,
		"OVSTunnel.Port":             ovsOwn,
		"OVSTunnel.VLAN":             ovsOwn,
		"OVSTunnel.Protected":        ovsOwn,
		"OVSPort.Name":               ovsOwn,
		"OVSPort.DB":                 "it leads to the database",
		"OVSPort.Bridge":             ovsOwn,
		"OVSPort.Peer":               "it says which link computes checksums",
		"OVSPort.VLAN":               ovsOwn,
		"OVSPort.OFPort":             ovsOwn,
		"OVSPort.IfaceID":            ovsOwn,
		"OVSPort.Owner":              ovsOwn,
		"ReferenceRules.Family":      "the reference plugins' rules are only removed",
		"ReferenceRules.Table":       "the reference plugins' rules are only removed",
		"ReferenceRules.Chain":       "the reference plugins' rules are only removed",
		"ReferenceRules.JumpTarget":  "the reference plugins' rules are only removed",
		"ReferenceRules.Comment":     "the reference plugins' rules are only removed",
		"ReferenceRules.Addr":        "the reference plugins' rules are only removed",
	}
}

// objects returns a function that returns a list.
func objects(list ...kernel.Object) func(*testing.T) kernel.Objects {
	return func(*testing.T) kernel.Objects { return list }
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

const (
	hostEnd   = "veth1"
	hostMAC   = "02:00:00:00:00:01"
	eth0MAC   = "02:00:00:00:00:02"
	bridgeMAC = "02:00:00:00:00:0b"
)

// pair returns a pair on a bridge, with addresses and both ends up.
func pair(more ...kernel.Object) func(*testing.T) kernel.Objects {
	in := kernel.Container
	return func(*testing.T) kernel.Objects {
		return append(kernel.Objects{
			&kernel.Bridge{Name: "br0", MAC: bridgeMAC, MTU: 1400, Promisc: true},
			&kernel.Addr{Link: "br0", Prefix: prefix("10.1.0.1/16"), IsShared: true},
			&kernel.Veth{Name: hostEnd, MAC: hostMAC, PeerSide: in, PeerName: "eth0", PeerMAC: eth0MAC, MTU: 1400, Master: "br0", OwnerTag: owner.Tag()},
			&kernel.Port{Link: hostEnd, Hairpin: true},
			&kernel.Up{Link: hostEnd},
			&kernel.Addr{In: in, Link: "eth0", Prefix: prefix("10.1.0.5/16")},
			&kernel.Addr{In: in, Link: "eth0", Prefix: prefix("fd00::5/64")},
			&kernel.Up{In: in, Link: "eth0"},
		}, more...)
	}
}

func situations() []situation {
	return slices.Concat(linkSituations(), routeSituations(), filterSituations(), trafficSituations(), agentSituations())
}

func linkSituations() []situation {
	in := kernel.Container
	id := 7
	return []situation{
		{name: "pair", objects: pair(), changes: []change{
			{attrs: "Bridge.Name", do: []string{"ip link del br0"}, want: []string{"br0 address 02:00:00:00:00:0b mtu 1400 up promisc on type bridge: is missing", "its bridge br0 is missing", "hairpin is off"}},
			{attrs: "Bridge.MAC", do: []string{"ip link set br0 address 02:00:00:00:00:99"}, want: []string{"type bridge: address is 02:00:00:00:00:99, want 02:00:00:00:00:0b"}},
			{attrs: "Bridge.Promisc", do: []string{"ip link set br0 promisc off"}, want: []string{"type bridge: is not promiscuous"}},
			{attrs: "Veth.Name Veth.PeerSide", do: []string{"ip link del veth1"}, want: []string{"type veth peer name eth0 address 02:00:00:00:00:02 netns container: is missing"}, gone: true},
			{attrs: "Veth.Type", do: []string{"ip link del veth1", "ip link add veth1 type ifb"}, want: []string{"is not of type veth but a link of type ifb"}, gone: true},
			{attrs: "Veth.PeerName", do: []string{"in ip link set eth0 down; ip link set eth0 name eth7 up"}, want: []string{"its peer eth0 is missing in the container"}, gone: true},
			{attrs: "Veth.MAC", do: []string{"ip link set veth1 address 02:00:00:00:00:99"}, want: []string{"netns container: address is 02:00:00:00:00:99, want 02:00:00:00:00:01"}},
			{attrs: "Veth.PeerMAC", do: []string{"in ip link set eth0 address 02:00:00:00:00:99"}, want: []string{"eth0 in the container: address is 02:00:00:00:00:99, want 02:00:00:00:00:02"}},
			{attrs: "Veth.MTU", do: []string{"ip link set veth1 mtu 1399"}, want: []string{"netns container: mtu is 1399, want 1400"}},
			{attrs: "Veth.MTU", do: []string{"in ip link set eth0 mtu 1399"}, want: []string{"eth0 in the container: mtu is 1399, want 1400"}},
			{attrs: "Veth.Master", do: []string{"ip link set veth1 nomaster"}, want: []string{"ip link set veth1 master br0: is not a port of br0", "hairpin is off"}},
			{attrs: "Veth.Master", do: []string{"ip link add br7 up type bridge", "ip link set veth1 master br7", "bridge link set dev veth1 hairpin on"}, want: []string{"ip link set veth1 master br0: is not a port of br0"}},
			{attrs: "Veth.OwnerTag", do: []string{"ip link set veth1 alias mine"}, want: []string{`alias is "mine", want "fairlead net c1 eth0"`}},
			{attrs: "Up.In Up.Link", do: []string{"ip link set veth1 down"}, want: []string{"ip link set veth1 up: is down"}},
			{attrs: "Up.In Up.Link", do: []string{"in ip link set eth0 down"}, want: []string{"ip link set eth0 up: is down", "fd00::5/64 dev eth0 nodad: is missing"}},
			{attrs: "Port.Link Port.Hairpin", do: []string{"bridge link set dev veth1 hairpin off"}, want: []string{"hairpin on: hairpin is off, want on"}},
			{attrs: "Port.Isolated", do: []string{"bridge link set dev veth1 isolated on"}, want: []string{"hairpin on: isolated is on, want off"}},
			{attrs: "Veth.Master", do: []string{"bridge link set dev veth1 state 0"}, want: []string{"ip link set veth1 master br0: the port is disabled"}},
			{attrs: "Addr.In Addr.Link Addr.Prefix", do: []string{"in ip addr del 10.1.0.5/16 dev eth0"}, want: []string{"10.1.0.5/16 dev eth0: is missing", "10.1.0.0/16 dev eth0 src 10.1.0.5 proto kernel: is missing"}},
			{attrs: "Addr.Prefix", do: []string{"in ip addr add 10.1.0.5/24 dev eth0; ip addr del 10.1.0.5/16 dev eth0; ip route replace 10.1.0.0/16 dev eth0 src 10.1.0.5"}, want: []string{"10.1.0.5/16 dev eth0: is missing"}},
			{attrs: "Addr.NoRoute", do: []string{"in ip addr change fd00::5/64 dev eth0 noprefixroute"}, want: []string{"noprefixroute is on, want off", "fd00::/64 dev eth0 metric 256 proto kernel: is missing"}},
			{attrs: "Addr.In Addr.Link", do: []string{"ip addr add fd00::5/64 dev br0 nodad", "in ip addr del fd00::5/64 dev eth0; ip addr add fd00::5/64 dev eth0"},
				want: []string{"fd00::5/64 dev eth0 nodad: failed duplicate address detection"}, until: "failed duplicate"},
			{attrs: "Addr.Prefix", do: []string{"in ip addr del 10.1.0.5/16 dev eth0; ip addr add 10.1.0.5/16 dev eth0 scope link"}, want: []string{"10.1.0.5/16 dev eth0: scope is 253, want 0"}},
			{attrs: "Addr.Prefix", do: []string{"in ip route del 10.1.0.0/16 dev eth0"}, want: []string{"10.1.0.0/16 dev eth0 src 10.1.0.5 proto kernel: is missing"}},
		}},
		{name: "attributes", objects: pair(&kernel.LinkAttrs{Link: "eth0", Set: kernel.LinkSettings{
			MAC: "02:00:00:00:00:77", MTU: 1300, Promisc: new(true), AllMulti: new(true), TxQLen: new(500)}}), changes: []change{
			{attrs: "LinkAttrs.Link LinkAttrs.Set", do: []string{"in ip link set eth0 mtu 1299"}, want: []string{"mtu is 1299, want 1300"}},
			{attrs: "LinkAttrs.Set", do: []string{"in ip link set eth0 address 02:00:00:00:00:02"}, want: []string{"address is 02:00:00:00:00:02, want 02:00:00:00:00:77"}},
			{attrs: "LinkAttrs.Set", do: []string{"in ip link set eth0 promisc off"}, want: []string{"promisc is off, want on"}},
			{attrs: "LinkAttrs.Set", do: []string{"in ip link set eth0 allmulticast off"}, want: []string{"allmulticast is off, want on"}},
			{attrs: "LinkAttrs.Set", do: []string{"in ip link set eth0 txqueuelen 7"}, want: []string{"txqueuelen is 7, want 500"}},
		}},
		{name: "bridge with br_netfilter", needs: []string{"br_netfilter"}, objects: func(*testing.T) kernel.Objects {
			return kernel.Objects{&kernel.Bridge{Name: "br0", MAC: bridgeMAC, Netfilter: true}}
		}, changes: []change{
			{attrs: "Bridge.Netfilter", do: []string{"ip link set br0 type bridge nf_call_iptables 0"}, want: []string{"does not send packets between its ports through the host's rules"}},
			{attrs: "Bridge.Netfilter", do: []string{"ip link set br0 type bridge nf_call_ip6tables 0"}, want: []string{"does not send packets between its ports through the host's rules"}},
			{attrs: "Bridge.Netfilter", do: []string{"sysctl -qw net.bridge.bridge-nf-filter-vlan-tagged=0"}, want: []string{"does not send packets with VLAN tags through the host's rules"}},
		}},
		{name: "VLANs", needs: []string{"bridge VLAN filtering"}, objects: func(t *testing.T) kernel.Objects {
			list := pair(&kernel.PortVLAN{Link: hostEnd, First: 1, Last: 1, Delete: true},
				&kernel.PortVLAN{Link: hostEnd, First: 7, Last: 7, PVID: true, Untagged: true}, &kernel.PortVLAN{Link: hostEnd, First: 10, Last: 12})(t)
			kernel.Of[*kernel.Bridge](list)[0].VLANFiltering = true
			return list
		}, changes: []change{
			{attrs: "Bridge.VLANFiltering", do: []string{"ip link set br0 type bridge vlan_filtering 0"}, want: []string{"does not filter VLANs"}},
			{attrs: "PortVLAN.Link PortVLAN.First PortVLAN.Last", do: []string{"bridge vlan del dev veth1 vid 11"}, want: []string{"vid 10-12: VLAN 11 is missing"}},
			{attrs: "PortVLAN.PVID", do: []string{"bridge vlan add dev veth1 vid 7 untagged"}, want: []string{"vid 7 pvid untagged: pvid of VLAN 7 is off, want on"}},
			{attrs: "PortVLAN.PVID", do: []string{"bridge vlan add dev veth1 vid 12 pvid"}, want: []string{"vid 7 pvid untagged: pvid of VLAN 7 is off, want on", "vid 10-12: pvid of VLAN 12 is on, want off"}},
			{attrs: "PortVLAN.Untagged", do: []string{"bridge vlan add dev veth1 vid 7 pvid"}, want: []string{"untagged of VLAN 7 is off, want on"}},
			{attrs: "PortVLAN.Untagged", do: []string{"bridge vlan add dev veth1 vid 10 untagged"}, want: []string{"untagged of VLAN 10 is on, want off"}},
			{attrs: "PortVLAN.Delete", do: []string{"bridge vlan add dev veth1 vid 1"}, want: []string{"delete dev veth1 vid 1: VLAN 1 still exists"}},
		}},
		{name: "macvlan", needs: []string{"macvlan"}, before: []string{"ip link add up0 type veth peer name up1", "ip link add up7 type veth peer name up8"},
			objects: objects(&kernel.StackedLink{Type: "macvlan", Name: "eth0", Parent: "up0", MAC: eth0MAC, MTU: 1400, Mode: "bridge", QueueLen: 500, OwnerTag: owner.Tag()}), changes: []change{
				{attrs: "StackedLink.Name", do: []string{"in ip link del eth0"}, want: []string{"is missing"}, gone: true},
				{attrs: "StackedLink.Type", do: []string{"in ip link del eth0; ip link add eth0 type ifb"}, want: []string{"is not of type macvlan but a link of type ifb"}, gone: true},
				{attrs: "StackedLink.MAC", do: []string{"in ip link set eth0 address 02:00:00:00:00:99"}, want: []string{"address is 02:00:00:00:00:99, want 02:00:00:00:00:02"}},
				{attrs: "StackedLink.MTU", do: []string{"in ip link set eth0 mtu 1399"}, want: []string{"mtu is 1399, want 1400"}},
				{attrs: "StackedLink.Mode", do: []string{"in ip link set eth0 type macvlan mode private"}, want: []string{"mode is private, want bridge"}},
				{attrs: "StackedLink.QueueLen", do: []string{"in ip link set eth0 type macvlan mode bridge bcqueuelen 600"}, want: []string{"bcqueuelen is 600, want 500"}},
				{attrs: "StackedLink.OwnerTag", do: []string{"in ip link set eth0 alias mine"}, want: []string{`alias is "mine", want "fairlead net c1 eth0"`}},
			}},
		{name: "ipvlan", needs: []string{"ipvlan"}, before: []string{"ip link add up0 type veth peer name up1"},
			objects: objects(&kernel.StackedLink{Type: "ipvlan", Name: "eth0", Parent: "up0", Mode: "l2", OwnerTag: owner.Tag()}), changes: []change{
				{attrs: "StackedLink.Mode", do: []string{"in ip link set eth0 type ipvlan mode l3"}, want: []string{"mode is l3, want l2"}},
			}},
		{name: "vlan", needs: []string{"vlan"}, before: []string{"in ip link add up0 type veth peer name up1"},
			objects: objects(&kernel.StackedLink{Type: "vlan", Name: "eth0", Parent: "up0", ParentSide: in, VLAN: 5, OwnerTag: owner.Tag()}), changes: []change{
				{attrs: "StackedLink.VLAN", do: []string{"in ip link del eth0; ip link add link up0 name eth0 type vlan id 6"}, want: []string{"VLAN is 6, want 5"}, gone: true},
				{attrs: "StackedLink.Parent StackedLink.ParentSide", do: []string{"in ip link add up7 type veth peer name up8; ip link del eth0; ip link add link up7 name eth0 type vlan id 5"}, want: []string{"up0 is not its parent"}, gone: true},
			}},
		{name: "dummy", needs: []string{"dummy"}, objects: objects(&kernel.Dummy{Name: "eth0", MAC: eth0MAC, OwnerTag: owner.Tag()}), changes: []change{
			{attrs: "Dummy.Name", do: []string{"in ip link del eth0"}, want: []string{"is missing"}, gone: true},
			{attrs: "Dummy.MAC", do: []string{"in ip link set eth0 address 02:00:00:00:00:99"}, want: []string{"address is 02:00:00:00:00:99, want 02:00:00:00:00:02"}},
			{attrs: "Dummy.OwnerTag", do: []string{"in ip link set eth0 alias mine"}, want: []string{`alias is "mine"`}},
		}},
		{name: "tap", needs: []string{"tap"}, before: []string{"in ip link add br0 type bridge"},
			objects: objects(&kernel.Tap{Name: "eth0", MAC: eth0MAC, MTU: 1400, UID: &id, GID: &id, Master: "br0", OwnerTag: owner.Tag()}), changes: []change{
				{attrs: "Tap.Name", do: []string{"in ip link del eth0"}, want: []string{"is missing"}, gone: true},
				{attrs: "Tap.MAC", do: []string{"in ip link set eth0 address 02:00:00:00:00:99"}, want: []string{"address is 02:00:00:00:00:99, want 02:00:00:00:00:02"}},
				{attrs: "Tap.MTU", do: []string{"in ip link set eth0 mtu 1399"}, want: []string{"mtu is 1399, want 1400"}},
				{attrs: "Tap.Master", do: []string{"in ip link set eth0 nomaster"}, want: []string{"is not a port of br0"}},
				{attrs: "Tap.OwnerTag", do: []string{"in ip link set eth0 alias mine"}, want: []string{`alias is "mine"`}},
				{attrs: "Tap.MultiQueue", do: []string{"in ip link del eth0; ip tuntap add name eth0 mode tap multi_queue user 7 group 7"}, want: []string{"multi_queue is on, want off"}, gone: true},
				{attrs: "Tap.UID Tap.GID", do: []string{"in ip link del eth0; ip tuntap add name eth0 mode tap user 8 group 8; ip link set eth0 address 02:00:00:00:00:02 mtu 1400 master br0 alias 'fairlead net c1 eth0'"},
					want: []string{"owner is not 7, group is not 7"}},
			}},
		{name: "host device", before: []string{"ip link add dev0 type ifb"},
			objects: objects(&kernel.HostDevice{Device: "dev0", Name: "eth0", OwnerTag: kernel.HostDeviceTag(owner, "dev0")}), changes: []change{
				{attrs: "HostDevice.Name", do: []string{"in ip link set eth0 name eth7"}, want: []string{"is missing"}, gone: true},
				{attrs: "HostDevice.Device HostDevice.OwnerTag", do: []string{"in ip link set eth0 alias mine"}, want: []string{`alias is "mine", want "fairlead net c1 eth0 was dev0"`}},
			}},
		{name: "vrf", needs: []string{"vrf"}, objects: pair(
			&kernel.Route{In: in, Dst: prefix("10.9.0.0/16"), Via: addr("10.1.0.1"), Link: "eth0"},
			&kernel.VRF{Name: "red", Table: 7}, &kernel.VRFMember{Link: "eth0", VRF: "red"}), changes: []change{
			{attrs: "VRF.Table", do: []string{"in ip link del red; ip link add red type vrf table 8; ip link set red up alias 'fairlead vrf'; ip link set eth0 master red; ip addr add fd00::5/64 dev eth0 nodad; ip route add 10.9.0.0/16 via 10.1.0.1 vrf red"},
				want: []string{"has table 8, want 7"}},
			{attrs: "VRF.Name", do: []string{"in ip link set red down"}, want: []string{"type vrf table 7: is down"}},
			{attrs: "VRFMember.Link VRFMember.VRF", do: []string{"in ip link set eth0 nomaster; ip addr replace fd00::5/64 dev eth0 nodad"},
				want: []string{"ip link set eth0 master red: is not in red", "10.9.0.0/16 via 10.1.0.1 dev eth0: is missing"}},
		}},
	}
}

func routeSituations() []situation {
	in := kernel.Container
	link := 253
	route := func(r kernel.Route) func(*testing.T) kernel.Objects {
		r.In, r.Link = in, "eth0"
		return pair(&r)
	}
	gw := addr("10.1.0.1")
	return []situation{
		{name: "route", objects: route(kernel.Route{Dst: prefix("10.9.0.0/16"), Via: gw, Src: addr("10.1.0.5"), Metric: 7, Table: 300, MTU: 1300, AdvMSS: 1200, OnLink: true}), changes: []change{
			{attrs: "Route.In Route.Dst", do: []string{"in ip route del 10.9.0.0/16 table 300"}, want: []string{"metric 7 table 300 mtu 1300 advmss 1200 onlink: is missing"}},
			{attrs: "Route.Via", do: []string{"in ip route change 10.9.0.0/16 via 10.1.0.2 dev eth0 src 10.1.0.5 metric 7 table 300 mtu 1300 advmss 1200 onlink"}, want: []string{"is missing; there is one via 10.1.0.2"}},
			{attrs: "Route.Link", do: []string{"in ip link set lo up; ip route del 10.9.0.0/16 table 300; ip route add 10.9.0.0/16 dev lo metric 7 table 300"}, want: []string{"is missing; there is one via"}},
			{attrs: "Route.Src", do: []string{"in ip addr add 10.1.0.6/32 dev eth0; ip route change 10.9.0.0/16 via 10.1.0.1 dev eth0 src 10.1.0.6 metric 7 table 300 mtu 1300 advmss 1200 onlink"}, want: []string{"src is 10.1.0.6, want 10.1.0.5"}},
			{attrs: "Route.Metric", do: []string{"in ip route del 10.9.0.0/16 table 300; ip route add 10.9.0.0/16 via 10.1.0.1 dev eth0 src 10.1.0.5 metric 8 table 300 mtu 1300 advmss 1200 onlink"}, want: []string{"is missing; there is one via 10.1.0.1"}},
			{attrs: "Route.Table", do: []string{"in ip route del 10.9.0.0/16 table 300; ip route add 10.9.0.0/16 via 10.1.0.1 dev eth0 src 10.1.0.5 metric 7 table 301 mtu 1300 advmss 1200 onlink"}, want: []string{"onlink: is missing"}},
			{attrs: "Route.MTU", do: []string{"in ip route change 10.9.0.0/16 via 10.1.0.1 dev eth0 src 10.1.0.5 metric 7 table 300 mtu 1299 advmss 1200 onlink"}, want: []string{"mtu is 1299, want 1300"}},
			{attrs: "Route.AdvMSS", do: []string{"in ip route change 10.9.0.0/16 via 10.1.0.1 dev eth0 src 10.1.0.5 metric 7 table 300 mtu 1300 onlink"}, want: []string{"advmss is 0, want 1200"}},
			{attrs: "Route.OnLink", do: []string{"in ip route change 10.9.0.0/16 via 10.1.0.1 dev eth0 src 10.1.0.5 metric 7 table 300 mtu 1300 advmss 1200"}, want: []string{"onlink is off, want on"}},
		}},
		{name: "route scope", objects: route(kernel.Route{Dst: prefix("10.9.0.0/16"), Scope: &link}), changes: []change{
			{attrs: "Route.Scope", do: []string{"in ip route del 10.9.0.0/16; ip route add 10.9.0.0/16 dev eth0 scope global"}, want: []string{"scope is 0, want 253"}},
		}},
		{name: "route type", objects: pair(&kernel.Route{In: in, Dst: prefix("10.9.0.0/16"), Type: kernel.Blackhole}), changes: []change{
			{attrs: "Route.Type", do: []string{"in ip route del blackhole 10.9.0.0/16; ip route add unreachable 10.9.0.0/16"}, want: []string{"blackhole 10.9.0.0/16: is missing"}},
		}},
		{name: "route hops", objects: route(kernel.Route{Dst: prefix("10.9.0.0/16"), Hops: []kernel.Hop{{Via: gw, Weight: 1}, {Via: addr("10.1.0.2"), Weight: 2}}}), changes: []change{
			{attrs: "Route.Hops", do: []string{"in ip route replace 10.9.0.0/16 nexthop via 10.1.0.1 dev eth0 weight 1 nexthop via 10.1.0.2 dev eth0 weight 3"}, want: []string{"is missing; there is one"}},
		}},
		{name: "IPv6 route", objects: pair(&kernel.Route{In: in, Link: "eth0", Dst: prefix("fd09::/64"), Via: addr("fd00::1"), MTU: 1300}), changes: []change{
			{attrs: "Route.In Route.Dst", do: []string{"in ip -6 route del fd09::/64"}, want: []string{"fd09::/64 via fd00::1 dev eth0 mtu 1300: is missing"}},
			{attrs: "Route.MTU", do: []string{"in ip -6 route change fd09::/64 via fd00::1 dev eth0 mtu 1299"}, want: []string{"mtu is 1299, want 1300"}},
		}},
		{name: "absent route", objects: pair(&kernel.Route{In: in, Link: "eth0", Dst: prefix("10.9.0.0/16"), Via: gw}, &kernel.AbsentRoute{Route: kernel.Route{In: in, Link: "eth0", Dst: prefix("10.9.0.0/16"), Via: gw}}), changes: []change{
			{attrs: "AbsentRoute.Route", do: []string{"in ip route add 10.9.0.0/16 via 10.1.0.1"}, want: []string{"route del 10.9.0.0/16 via 10.1.0.1 dev eth0: exists again in table 254"}},
		}},
		{name: "rule", objects: objects(&kernel.Rule{In: in, Priority: 100, From: prefix("10.1.0.0/16"), To: prefix("10.2.0.0/16"), Table: 300, Proto: 99}), changes: []change{
			{attrs: "Rule.In Rule.Priority", do: []string{"in ip rule del priority 100; ip rule add priority 101 from 10.1.0.0/16 to 10.2.0.0/16 table 300 protocol 99"}, want: []string{"table 300: is missing"}},
			{attrs: "Rule.From", do: []string{"in ip rule del priority 100; ip rule add priority 100 from 10.1.0.0/17 to 10.2.0.0/16 table 300 protocol 99"}, want: []string{"table 300: is missing"}},
			{attrs: "Rule.To", do: []string{"in ip rule del priority 100; ip rule add priority 100 from 10.1.0.0/16 to 10.2.0.0/17 table 300 protocol 99"}, want: []string{"table 300: is missing"}},
			{attrs: "Rule.Table", do: []string{"in ip rule del priority 100; ip rule add priority 100 from 10.1.0.0/16 to 10.2.0.0/16 table 301 protocol 99"}, want: []string{"table 300: is missing"}},
			{attrs: "Rule.Proto", do: []string{"in ip rule del priority 100; ip rule add priority 100 from 10.1.0.0/16 to 10.2.0.0/16 table 300 protocol 98"}, want: []string{"table 300: is missing"}},
			{attrs: "Rule.From", do: []string{"in ip rule del priority 100; ip rule add priority 100 from 10.1.0.0/16 to 10.2.0.0/16 fwmark 1 table 300 protocol 99"}, want: []string{"table 300: is missing"}},
		}},
		{name: "neighbour", objects: pair(&kernel.Neigh{In: in, Link: "eth0", IP: addr("10.1.0.7"), MAC: "02:00:00:00:00:07", Proto: 99}), changes: []change{
			{attrs: "Neigh.In Neigh.Link Neigh.IP", do: []string{"in ip neigh del 10.1.0.7 dev eth0"}, want: []string{"10.1.0.7 lladdr 02:00:00:00:00:07 dev eth0 nud permanent: is missing"}},
			{attrs: "Neigh.MAC", do: []string{"in ip neigh change 10.1.0.7 lladdr 02:00:00:00:00:08 dev eth0 nud permanent protocol 99"}, want: []string{"lladdr is 02:00:00:00:00:08, want 02:00:00:00:00:07"}},
			{attrs: "Neigh.Proto", do: []string{"in ip neigh change 10.1.0.7 lladdr 02:00:00:00:00:07 dev eth0 nud permanent protocol 98"}, want: []string{"proto is 98, want 99"}},
			{attrs: "Neigh.MAC", do: []string{"in ip neigh change 10.1.0.7 lladdr 02:00:00:00:00:07 dev eth0 nud reachable protocol 99"}, want: []string{"is not permanent"}},
		}},
		{name: "sysctl", objects: pair(&kernel.Sysctl{In: in, Key: "net/ipv4/conf/eth0/arp_filter", Value: "1", Link: "eth0"}), changes: []change{
			{attrs: "Sysctl.In Sysctl.Key Sysctl.Value", do: []string{"in sysctl -qw net.ipv4.conf.eth0.arp_filter=0"}, want: []string{"sysctl -w net.ipv4.conf.eth0.arp_filter=1: is 0"}},
		}},
	}
}

// filterSituations are about nftables and iptables.
func filterSituations() []situation {
	forward := &kernel.ForwardRule{Family: "inet", Table: "mine", Chain: "passing", Addr: "10.1.0.5", OwnerTag: owner.Tag()}
	tag := ` comment \"` + owner.Tag() + `\"`
	mapType := "inet_proto . inet_service : ipv4_addr . inet_service"
	return []situation{
		{name: "ruleset", objects: func(*testing.T) kernel.Objects { return masquerade("10.1.0.5") }, changes: []change{
			{attrs: "NFT.Family NFT.Table NFT.Kind", do: []string{"nft delete table inet fairlead"}, want: []string{"add table inet fairlead: is missing", "is missing", "is missing", "is missing", "is missing", "is missing", "is missing", "is missing"}},
			{attrs: "NFT.Table", do: []string{"nft 'table inet fairlead { flags dormant; }'"}, want: []string{"add table inet fairlead: is dormant"}},
			{attrs: "NFT.Name", do: []string{"nft flush chain inet fairlead postrouting; nft delete chain inet fairlead postrouting"}, want: []string{"add chain inet fairlead postrouting", "add rule inet fairlead postrouting ip saddr @masq-net jump masq-net: is missing"}},
			{attrs: "NFT.Text", do: []string{"nft 'chain inet fairlead postrouting { type nat hook postrouting priority 105; policy drop; }'"}, want: []string{"policy is drop, want accept"}},
			{attrs: "NFT.Text", do: []string{"nft 'flush chain inet fairlead postrouting; delete chain inet fairlead postrouting; add chain inet fairlead postrouting { type nat hook postrouting priority 106; }'"},
				want: []string{"hook is nat postrouting priority 106, want nat postrouting priority 105", "jump masq-net: is missing"}},
			{attrs: "NFT.Text", do: []string{"nft 'flush chain inet fairlead postrouting; delete chain inet fairlead postrouting; add chain inet fairlead postrouting { type filter hook input priority 105; }'"},
				want: []string{"hook is filter input priority 105, want nat postrouting priority 105", "jump masq-net: is missing"}},
			{attrs: "NFT.Text", do: []string{replaceRule("masq-net", "daddr 10.1.0.0/16", "ip daddr 10.1.0.0/17 return")}, want: []string{"ip daddr 10.1.0.0/16 return: has other statements"}},
			{attrs: "NFT.Text", do: []string{replaceRule("masq-net", "masquerade", "ip daddr != 224.0.0.0/4 masquerade random")}, want: []string{"masquerade: has other statements"}},
			{attrs: "NFT.Text", do: []string{replaceRule("postrouting", "jump", "ip saddr @masq-net counter")}, want: []string{"jump masq-net: has other statements"}},
			{attrs: "NFT.Text", do: []string{"nft flush chain inet fairlead masq-net"}, want: []string{"16 return: is missing", "masquerade: is missing"}},
			{attrs: "NFT.Text", do: []string{"nft 'flush chain inet fairlead postrouting; delete set inet fairlead masq-net; add set inet fairlead masq-net { type ipv6_addr; }'"},
				want: []string{"type is ipv6_addr, want ipv4_addr", "jump masq-net: is missing", "10.1.0.5"}},
			{attrs: "NFT.Text", do: []string{"nft 'flush chain inet fairlead postrouting; delete set inet fairlead masq-net; add set inet fairlead masq-net { type ipv4_addr; flags interval; }'"},
				want: []string{"flags is 4, want 0", "jump masq-net: is missing", "10.1.0.5"}},
			{attrs: "Element.Family Element.Table Element.Set Element.Type Element.Key", do: []string{"nft delete element inet fairlead masq-net '{ 10.1.0.5 }'"}, want: []string{"{ 10.1.0.5 comment"}},
			{attrs: "Element.OwnerTag", do: []string{"nft 'delete element inet fairlead masq-net { 10.1.0.5 }; add element inet fairlead masq-net { 10.1.0.5 }'"}, want: []string{`belongs to ""`}},
		}},
		{name: "host port", objects: objects(part("table", "", ""), part("map", "ports4", mapType), part("chain", "ports", ""),
			part("chain", "prerouting", "type nat hook prerouting priority -95; policy accept"),
			part("rule", "ports", "meta nfproto ipv4 dnat ip to meta l4proto . th dport map @ports4"),
			part("rule", "prerouting", "fib daddr type local jump ports"),
			&kernel.Element{Family: "inet", Table: "fairlead", Set: "ports4", Type: mapType, Key: "tcp . 80", Value: "10.1.0.5 . 8080", OwnerTag: owner.Tag()}), changes: []change{
			{attrs: "Element.Value", do: []string{`nft "delete element inet fairlead ports4 { tcp . 80 }; add element inet fairlead ports4 { tcp . 80` + tag + ` : 10.1.0.6 . 8080 }"`}, want: []string{"value is 10.1.0.6 . 8080, want 10.1.0.5 . 8080"}},
			{attrs: "NFT.Text", do: []string{replaceRule("ports", "dnat", "tcp dport 80 dnat ip to 10.1.0.7:80")}, want: []string{"has other statements"}},
		}},
		{name: "forward rule", before: []string{"nft 'table inet mine { chain passing { type filter hook forward priority 0; policy drop; }; }'"}, objects: objects(forward), changes: []change{
			{attrs: "ForwardRule.Family ForwardRule.Table ForwardRule.Chain", do: []string{"nft flush chain inet mine passing"}, want: []string{"is missing"}},
			{attrs: "ForwardRule.Addr", do: []string{`nft "flush chain inet mine passing; add rule inet mine passing ip saddr 10.1.0.6 accept` + tag + `"`}, want: []string{"is missing"}},
			{attrs: "ForwardRule.V6", do: []string{`nft "flush chain inet mine passing; add rule inet mine passing ip6 saddr fd00::5 accept` + tag + `"`}, want: []string{"is missing"}},
			{attrs: "ForwardRule.OwnerTag", do: []string{`nft "flush chain inet mine passing; add rule inet mine passing ip saddr 10.1.0.5 accept comment mine"`}, want: []string{"is missing"}},
		}},
		{name: "command", objects: objects(&kernel.Command{
			Probe: []string{"iptables", "-w", "-C", "FORWARD", "-s", "10.1.0.5/32", "-j", "ACCEPT"}, Do: []string{"iptables", "-w", "-A", "FORWARD", "-s", "10.1.0.5/32", "-j", "ACCEPT"},
			Undo: []string{"iptables", "-w", "-D", "FORWARD", "-s", "10.1.0.5/32", "-j", "ACCEPT"}}), changes: []change{
			{attrs: "Command.Probe Command.Do Command.Undo", do: []string{"iptables -w -F FORWARD"}, want: []string{"iptables -w -A FORWARD -s 10.1.0.5/32 -j ACCEPT: is missing"}},
		}},
		{name: "flows", before: []string{"ip addr add 192.0.2.1/24 dev lo"}, objects: objects(&kernel.ConntrackFlows{HostIP: addr("192.0.2.1"), Port: 53, Target: addr("10.1.0.5")}), changes: []change{
			{attrs: "ConntrackFlows.HostIP ConntrackFlows.Port ConntrackFlows.Target", do: []string{"conntrack -I -p udp -s 192.0.2.9 -d 192.0.2.1 --sport 999 --dport 53 -t 60 -u SEEN_REPLY"}, want: []string{"1 flows go to another target"}},
		}},
	}
}

// replaceRule returns a command that replaces the statements of a rule, and keeps its comment.
func replaceRule(chain, with, text string) string {
	return `line=$(nft -a list chain inet fairlead ` + chain + ` | grep -- "` + with + `"); comment=$(echo "$line" | sed 's/.*comment "\([^"]*\)".*/\1/'); ` +
		`nft "replace rule inet fairlead ` + chain + ` handle ${line##*handle } ` + text + ` comment \"$comment\""`
}

// trafficSituations are about tc(8).
func trafficSituations() []situation {
	ifb := &kernel.IFB{Name: "bwp0", MAC: "02:00:00:00:00:03", MTU: 1400, OwnerTag: owner.Tag()}
	shaped := []kernel.Object{ifb, &kernel.Up{Link: "bwp0"},
		&kernel.Qdisc{Link: "bwp0", Type: "tbf", Rate: 125000, Burst: 20000, Limit: 30000},
		&kernel.Qdisc{Link: hostEnd, Type: "htb", Rate: 125000, Burst: 20000, Default: true},
		&kernel.TCFilter{Link: hostEnd, Parent: kernel.RootHandle, Prefix: prefix("10.3.0.0/16"), From: true, Class: kernel.RootHandle, Priority: 1},
		&kernel.Qdisc{Link: hostEnd, Type: "ingress"},
		&kernel.TCFilter{Link: hostEnd, Parent: kernel.IngressHandle, Redirect: "bwp0", Priority: 1}}
	filter := func(words string) []string {
		return []string{"tc filter del dev veth1 parent 1: prio 1", "tc filter add dev veth1 " + words}
	}
	redirect := "action mirred egress redirect dev "
	return []situation{{name: "shaping", before: []string{"ip link add bwp7 type ifb"}, objects: pair(shaped...), changes: []change{
		{attrs: "IFB.Name", do: []string{"ip link del bwp0"}, want: []string{"type ifb: is missing", "redirect dev bwp0: bwp0 is missing"}},
		{attrs: "IFB.MAC", do: []string{"ip link del bwp0; ip link add bwp0 address 02:00:00:00:00:99 mtu 1400 type ifb; ip link set bwp0 up alias 'fairlead net c1 eth0'"},
			want: []string{"address is 02:00:00:00:00:99, want 02:00:00:00:00:03", "tbf rate 1000000bit burst 20000 limit 30000: is missing", "does not redirect to bwp0"}},
		{attrs: "IFB.MTU", do: []string{"ip link set bwp0 mtu 1399"}, want: []string{"mtu is 1399, want 1400"}},
		{attrs: "IFB.OwnerTag", do: []string{"ip link set bwp0 alias mine"}, want: []string{`alias is "mine"`}},
		{attrs: "Qdisc.In Qdisc.Link", do: []string{"tc qdisc del dev bwp0 root"}, want: []string{"tbf rate 1000000bit burst 20000 limit 30000: is missing"}},
		{attrs: "Qdisc.Type", do: []string{"tc qdisc del dev bwp0 root; tc qdisc add dev bwp0 root handle 1: htb"}, want: []string{"tbf rate 1000000bit burst 20000 limit 30000: is missing"}},
		{attrs: "Qdisc.Rate", do: []string{"tc qdisc change dev bwp0 root handle 1: tbf rate 2000000bit burst 20000 limit 30000"}, want: []string{"rate is 2000000 bit/s, want 1000000"}},
		{attrs: "Qdisc.Burst", do: []string{"tc qdisc change dev bwp0 root handle 1: tbf rate 1000000bit burst 21000 limit 30000"}, want: []string{"burst is 21000 bytes, want 20000"}},
		{attrs: "Qdisc.Limit", do: []string{"tc qdisc change dev bwp0 root handle 1: tbf rate 1000000bit burst 20000 limit 31000"}, want: []string{"limit is 31000, want 30000"}},
		{attrs: "Qdisc.Rate", do: []string{"tc class change dev veth1 classid 1:1 htb rate 2000000bit ceil 1000000bit burst 20000 cburst 20000"}, want: []string{"rate is 2000000 bit/s, want 1000000"}},
		{attrs: "Qdisc.Rate", do: []string{"tc class change dev veth1 classid 1:1 htb rate 1000000bit ceil 2000000bit burst 20000 cburst 20000"}, want: []string{"ceil is 2000000 bit/s, want 1000000"}},
		{attrs: "Qdisc.Burst", do: []string{"tc class change dev veth1 classid 1:1 htb rate 1000000bit ceil 1000000bit burst 21000 cburst 20000"}, want: []string{"burst is 21000 bytes, want 20000"}},
		{attrs: "Qdisc.Default", do: []string{"tc qdisc del dev veth1 root; tc qdisc add dev veth1 root handle 1: htb default 7; tc class add dev veth1 classid 1:1 htb rate 1000000bit ceil 1000000bit burst 20000 cburst 20000; tc filter add dev veth1 parent 1: prio 1 protocol ip u32 match ip src 10.3.0.0/16 flowid 1:"},
			want: []string{"default is 7, want 1"}},
		{attrs: "Qdisc.Type", do: []string{"tc qdisc del dev veth1 ingress"}, want: []string{"ingress: is missing", "redirect dev bwp0: is missing"}},
		{attrs: "TCFilter.In TCFilter.Link TCFilter.Parent", do: []string{"tc filter del dev veth1 parent 1:"}, want: []string{"src 10.3.0.0/16 flowid 1:: is missing"}},
		{attrs: "TCFilter.Prefix", do: filter("parent 1: prio 1 protocol ip u32 match ip src 10.3.0.0/17 flowid 1:"), want: []string{"src 10.3.0.0/16 flowid 1:: is missing"}},
		{attrs: "TCFilter.From", do: filter("parent 1: prio 1 protocol ip u32 match ip dst 10.3.0.0/16 flowid 1:"), want: []string{"src 10.3.0.0/16 flowid 1:: is missing"}},
		{attrs: "TCFilter.Class", do: filter("parent 1: prio 1 protocol ip u32 match ip src 10.3.0.0/16 flowid 1:1"), want: []string{"flowid is 1:1, want 1:"}},
		{attrs: "TCFilter.Priority", do: filter("parent 1: prio 2 protocol ip u32 match ip src 10.3.0.0/16 flowid 1:"), want: []string{"src 10.3.0.0/16 flowid 1:: is missing"}},
		{attrs: "TCFilter.Redirect", do: []string{"tc filter del dev veth1 ingress", "tc filter add dev veth1 ingress prio 1 protocol all u32 match u32 0 0 " + redirect + "bwp7"}, want: []string{"does not redirect to bwp0"}},
	}}}
}

// agentSituations are about the agent's tunnels.
func agentSituations() []situation {
	under := []string{"ip link add up0 type veth peer name up1", "ip addr add 192.0.2.1/24 dev up0", "ip link set up0 up", "ip link set up1 up"}
	other := append(slices.Clone(under), "ip link add up7 type veth peer name up8", "ip addr add 192.0.2.7/32 dev up0", "ip link set up7 up", "ip link set up8 up")
	fdb := &kernel.FDB{Link: "vx1", MAC: "02:00:00:00:00:0f", Dst: addr("192.0.2.2")}
	vx := func(id, local, dev, port string) []string {
		return []string{"ip link del vx1", "ip link add vx1 address 02:00:00:00:00:01 mtu 1430 type vxlan id " + id + " local " + local + " dev " + dev + " dstport " + port + " nolearning",
			"sysctl -qw net.ipv6.conf.vx1.accept_ra=0", "ip link set vx1 up alias '" + agentMark + "'", "bridge fdb add 02:00:00:00:00:0f dev vx1 dst 192.0.2.2"}
	}
	between := &kernel.NetnsVeth{Name: "n0", MAC: hostMAC, PeerName: "n1", PeerMAC: eth0MAC, MTU: 1400, OwnerTag: agentMark}
	return []situation{
		{name: "vxlan", needs: []string{"vxlan"}, before: other, objects: objects(vxlan("192.0.2.1"), fdb), changes: []change{
			{attrs: "VXLAN.In VXLAN.Name", do: []string{"ip link del vx1"}, want: []string{"dstport 8472 nolearning: is missing"}},
			{attrs: "VXLAN.ID", do: vx("8", "192.0.2.1", "up0", "8472"), want: []string{"VNI is 8, want 7"}},
			{attrs: "VXLAN.Port", do: vx("7", "192.0.2.1", "up0", "8473"), want: []string{"port is 8473, want 8472"}},
			{attrs: "VXLAN.Local", do: vx("7", "192.0.2.7", "up0", "8472"), want: []string{"local is 192.0.2.7, want 192.0.2.1"}},
			{attrs: "VXLAN.Link", do: vx("7", "192.0.2.1", "up7", "8472"), want: []string{"up0 is not its underlay"}},
			{attrs: "VXLAN.MAC", do: []string{"ip link set vx1 address 02:00:00:00:00:99"}, want: []string{"address is 02:00:00:00:00:99, want 02:00:00:00:00:01"}},
			{attrs: "VXLAN.MTU", do: []string{"ip link set vx1 mtu 1400"}, want: []string{"mtu is 1400, want 1430"}},
			{attrs: "VXLAN.OwnerTag", do: []string{"ip link set vx1 alias fairlead-agent"}, want: []string{`alias is "fairlead-agent"`}},
			{attrs: "FDB.In FDB.Link FDB.MAC", do: []string{"bridge fdb del 02:00:00:00:00:0f dev vx1"}, want: []string{"self permanent: is missing"}},
			{attrs: "FDB.Dst", do: []string{"bridge fdb replace 02:00:00:00:00:0f dev vx1 dst 192.0.2.3"}, want: []string{"dst is 192.0.2.3, want 192.0.2.2"}},
		}},
		{name: "ipip", needs: []string{"ipip"}, before: other, objects: objects(&kernel.IPIP{Name: "tun1", Local: addr("192.0.2.1"), MTU: 1450, OwnerTag: agentMark}), changes: []change{
			{attrs: "IPIP.In IPIP.Name", do: []string{"ip link del tun1"}, want: []string{"is missing"}},
			{attrs: "IPIP.Local", do: []string{"ip link set tun1 type ipip local 192.0.2.7 remote any ttl 64"}, want: []string{"local is 192.0.2.7, want 192.0.2.1"}},
			{attrs: "IPIP.MTU", do: []string{"ip link set tun1 mtu 1400"}, want: []string{"mtu is 1400, want 1450"}},
			{attrs: "IPIP.OwnerTag", do: []string{"ip link set tun1 alias fairlead-agent"}, want: []string{`alias is "fairlead-agent"`}},
		}},
		{name: "wireguard", needs: []string{"wireguard"}, objects: func(t *testing.T) kernel.Objects { return kernel.Objects{wireguard(t, 2)} }, changes: []change{
			{attrs: "WireGuard.Name WireGuard.KeyFile WireGuard.Port WireGuard.Peers", do: []string{"ip link del wg0", "ip link add wg0 mtu 1420 type wireguard", "ip link set wg0 up alias '" + agentMark + "'"},
				want: []string{"does not listen on port 51820"}},
			{attrs: "WireGuard.MTU", do: []string{"ip link set wg0 mtu 1400"}, want: []string{"mtu is 1400, want 1420"}},
			{attrs: "WireGuard.OwnerTag", do: []string{"ip link set wg0 alias fairlead-agent"}, want: []string{`alias is "fairlead-agent"`}},
		}},
		{name: "between namespaces", objects: objects(between), changes: []change{
			{attrs: "NetnsVeth.In NetnsVeth.Name", do: []string{"ip link del n0"}, want: []string{"is missing"}},
			{attrs: "NetnsVeth.PeerIn NetnsVeth.PeerName", do: []string{"in ip link set n1 down; ip link set n1 name n7"}, want: []string{"its peer n1 is not in its namespace"}},
			{attrs: "NetnsVeth.MAC", do: []string{"ip link set n0 address 02:00:00:00:00:99"}, want: []string{"address of n0 is 02:00:00:00:00:99, want 02:00:00:00:00:01"}},
			{attrs: "NetnsVeth.PeerMAC", do: []string{"in ip link set n1 address 02:00:00:00:00:99"}, want: []string{"address of n1 is 02:00:00:00:00:99, want 02:00:00:00:00:02"}},
			{attrs: "NetnsVeth.MTU", do: []string{"in ip link set n1 mtu 1399"}, want: []string{"mtu of n1 is 1399, want 1400"}},
			{attrs: "NetnsVeth.OwnerTag", do: []string{"ip link set n0 alias fairlead-agent"}, want: []string{`alias of n0 is "fairlead-agent"`}},
		}},
	}
}
