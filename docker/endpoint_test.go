package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/doctor/gather"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/repair"
)

// unchanged checks that repair finds nothing to do.
func (h *host) unchanged() {
	h.t.Helper()
	if r := h.repaired(true); len(r.Restored)+len(r.Failed) > 0 || r.Error != "" || r.Skipped != "" {
		h.t.Errorf("repair would change something: %+v", r)
	}
}

func (h *host) repaired(dry bool) repair.Report {
	h.t.Helper()
	return repair.Attachment(h.records, libcni.NewCNIConfigWithCacheDir(nil, h.options.LibDir, nil), h.record(), dry)
}

// TestBridge attaches an endpoint with both families and a published port, as dockerd does, and removes it.
func TestBridge(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := kerneltest.Netns(t)
	h.network("n1", "", pools)
	before := kerneltest.Dump(t, "")
	made := h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24","AddressIPv6":"fd20::5/64"}}`)
	if i := made["Interface"].(map[string]any); len(i) != 1 || i["MacAddress"] == "" {
		t.Errorf("the driver chose %v, want only a hardware address", i)
	}
	if r := h.record(); r.State() != attach.StateStaged {
		t.Errorf("state %s before Join", r.State())
	}
	if got := kerneltest.Run(t, "ip", "addr"); strings.Contains(got, "10.20.0.5") || strings.Contains(got, "fd20::5") {
		t.Errorf("the host has the container's addresses: %s", got)
	}
	if r := h.repaired(false); r.Skipped == "" {
		t.Errorf("repair of a staged attachment: %+v", r)
	}
	h.fails("NetworkDriver.Join", `{`+ids("n1", "e1")+`}`, "SandboxKey is empty")
	joined := h.join("n1", "e1", c, "10.20.0.5/24 fd20::5/64")
	if joined["Gateway"] != "10.20.0.1" || joined["GatewayIPv6"] != "fd20::1" {
		t.Errorf("gateways %v", joined)
	}
	h.fails("NetworkDriver.Join", `{`+ids("n1", "e1")+`,"SandboxKey":"/x"}`, "is in the container at "+c+" already")
	if r := h.record(); r.Link != "eth0" || r.Netns != c {
		t.Errorf("the record has link %q in %s", r.Link, r.Netns)
	}
	h.unchanged()
	kerneltest.In(t, c, "ping", "-c1", "-W2", "10.20.0.1")
	kerneltest.In(t, c, "ping", "-c1", "-W2", "fd20::1")
	if got := strings.TrimSpace(kerneltest.In(t, c, "cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra")); got != "0" {
		t.Errorf("the container accepts router advertisements: %s", got)
	}

	h.call("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+
		`,"Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostPort":8080},{"Proto":17,"Port":53,"HostIP":"127.0.0.1"},{"Proto":6,"Port":81,"HostPort":8080,"HostPortEnd":8090}]}}`)
	want := []attach.Port{{HostIP: "127.0.0.1", HostPort: 60999, ContainerPort: 53, Protocol: "udp"}, {HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}, {HostPort: 8081, ContainerPort: 81, Protocol: "tcp"}}
	if r := h.record(); !slices.Equal(r.Parts[len(r.Parts)-1].Ports, want) {
		t.Errorf("ports %v, want %v", r.Parts[len(r.Parts)-1].Ports, want)
	}
	h.unchanged()
	h.call("NetworkDriver.RevokeExternalConnectivity", `{`+ids("n1", "e1")+`}`)
	if r := h.record(); r.Last("portmap") >= 0 {
		t.Error("the ports are still forwarded")
	}
	h.call("NetworkDriver.Leave", `{`+ids("n1", "e1")+`}`)
	if got := kerneltest.In(t, c, "ip", "-br", "link"); strings.Contains(got, "eth0") {
		t.Errorf("left in the container: %s", got)
	}
	h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e1")+`}`)
	h.nothingLeft()
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`)
	if d := kerneltest.Diff(links(before), links(kerneltest.Dump(t, ""))); d != "" {
		t.Errorf("left of the network:\n%s", d)
	}
	if rules := kerneltest.Run(t, "nft", "list", "table", "inet", "fairlead"); strings.Contains(rules, "fl-n1") {
		t.Errorf("rules left of the network's bridge:\n%s", rules)
	}
}

// links returns the lines of a dump that are about links.
func links(dump string) string {
	var out []string
	for l := range strings.Lines(dump) {
		if strings.Contains(l, "mtu") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "")
}

// TestRepair removes what dockerd and Fairlead created, and repairs it by the record.
func TestRepair(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", "", pool4)
	c := h.container()
	kerneltest.In(t, c, "ip", "addr", "flush", "dev", "eth0")
	kerneltest.Run(t, "nft", "flush", "ruleset")
	if r := h.repaired(false); len(r.Restored) < 2 || len(r.Failed) > 0 {
		t.Errorf("%+v", r)
	}
	h.unchanged()
}

// TestDoctor checks that doctor looks at a container's interface under the name that dockerd gave it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", "", pool4)
	c := h.container()
	found := func() (names []string) {
		t.Helper()
		facts, unseen, err := gather.Facts(t.Context(), gather.Options{
			Runtime: libcni.NewCNIConfigWithCacheDir(nil, h.options.LibDir, nil), StateDir: h.options.RunDir, LibDir: h.options.LibDir, ConfDir: t.TempDir(),
			Include: func(*attach.Record) bool { return true },
		})
		must(t, err)
		if len(unseen) > 0 || len(facts.Attachments) != 1 || len(facts.Attachments[0].Paths) != 1 {
			t.Errorf("gathered %+v, not %q", facts.Attachments, unseen)
		}
		for _, f := range doctor.Examine(facts) {
			if f.Container != "" {
				names = append(names, f.Name+" "+f.IfName)
			}
		}
		return names
	}
	if got := found(); len(got) > 0 {
		t.Errorf("found %q", got)
	}
	kerneltest.In(t, c, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:99")
	if got := found(); !slices.Contains(got, "mac-changed eth0") {
		t.Errorf("found %q, want mac-changed", got)
	}
}

// TestRestartedBetweenCalls starts the driver again after each call.
func TestRestartedBetweenCalls(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := kerneltest.Netns(t)
	h.network("n1", "", pool4)
	h.start()
	endpoint := `{` + ids("n1", "e1") + `,"Interface":{"Address":"10.20.0.5/24"}}`
	h.call("NetworkDriver.CreateEndpoint", endpoint)
	h.start()
	h.call("NetworkDriver.CreateEndpoint", endpoint) // its reply was lost
	h.start()
	h.join("n1", "e1", c, "10.20.0.5/24")
	h.start()
	h.unchanged()
	h.call("NetworkDriver.Leave", `{`+ids("n1", "e1")+`}`)
	h.start()
	h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e1")+`}`)
	if _, err := h.records.Read(kernel.Owner{Network: "docker-n1", ContainerID: "e1"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record: %v", err)
	}
	if got := kerneltest.Run(t, "ip", "-br", "link"); strings.Contains(got, "veth") {
		t.Errorf("left: %s", got)
	}
}

// TestMovedBack removes an endpoint whose link dockerd has moved back to the host, and one whose container is gone.
func TestMovedBack(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "macvlan")
	h := newHost(t)
	kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	kerneltest.Run(t, "ip", "link", "set", "up0", "up")
	h.network("n1", `"type":"macvlan","parent":"up0"`, pool4)
	for _, end := range []string{"moved back", "gone"} {
		c := h.container()
		h.unchanged()
		if end == "gone" {
			kerneltest.Gone(t, c)
		} else {
			src := h.record().IfName
			kerneltest.In(t, c, "ip", "link", "set", "eth0", "down")
			kerneltest.In(t, c, "ip", "link", "set", "eth0", "name", src)
			moveToHost(t, c, src)
		}
		h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e1")+`}`)
		h.nothingLeft()
	}
}

// moveToHost moves a link of a container to the test's host.
func moveToHost(t *testing.T, container, link string) {
	t.Helper()
	host, err := netns.Current()
	must(t, err)
	defer host.Close()
	kerneltest.In(t, container, "ip", "link", "set", link, "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), host.FD()))
}

// TestTypes attaches an endpoint to a network of each type on a parent link.
func TestTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, typ, options, join, feature string }{
		{"macvlan private", "macvlan", `"mode":"private"`, `"Gateway":"10.20.0.1"`, "macvlan"},
		{"macvlan bridge", "macvlan", `"macvlan_mode":"bridge","mtu":"1400"`, `"Gateway":"10.20.0.1"`, "macvlan"},
		{"ipvlan l2", "ipvlan", `"mode":"l2"`, `"Gateway":"10.20.0.1"`, "ipvlan"},
		{"ipvlan l3", "ipvlan", `"ipvlan_mode":"l3"`, `"StaticRoutes":[{"Destination":"0.0.0.0/0","RouteType":1}],"DisableGatewayService":true`, "ipvlan"},
		{"vlan", "vlan", `"vlan":"7"`, `"Gateway":"10.20.0.1"`, "vlan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, c.feature)
			h := newHost(t)
			kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
			kerneltest.Run(t, "ip", "link", "set", "up0", "up")
			kerneltest.Run(t, "ip", "link", "set", "up1", "up")
			h.network("n1", `"type":"`+c.typ+`","parent":"up0",`+c.options, pool4)
			h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
			_, joined := h.raw("NetworkDriver.Join", `{`+ids("n1", "e1")+`,"SandboxKey":"/nowhere"}`)
			if !strings.Contains(joined, c.join) {
				t.Errorf("Join: %s, want %s", joined, c.join)
			}
			h.call("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostPort":8080}]}}`)
			if h.record().Last("portmap") >= 0 {
				t.Error("a port is published on a network that publishes none")
			}
			h.join("n1", "e1", kerneltest.Netns(t), "10.20.0.5/24")
			h.unchanged()
			h.call("NetworkDriver.Leave", `{`+ids("n1", "e1")+`}`)
			h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e1")+`}`)
			h.nothingLeft()
		})
	}
}

// TestInternal checks that an internal network has no gateway, and that the host has no address on it.
func TestInternal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.call("NetworkDriver.CreateNetwork", `{"NetworkID":"n1","Options":{"com.docker.network.internal":true},`+pool4+`}`)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	joined := h.join("n1", "e1", kerneltest.Netns(t), "10.20.0.5/24")
	if joined["Gateway"] != nil || joined["DisableGatewayService"] != true {
		t.Errorf("Join: %v", joined)
	}
	h.unchanged()
	if got := kerneltest.Run(t, "ip", "-4", "addr"); strings.Contains(got, "10.20.0.") {
		t.Errorf("the host's addresses: %s", got)
	}
}

// TestMovedObjects checks which objects of an attachment remain once dockerd has configured the container.
func TestMovedObjects(t *testing.T) {
	t.Parallel()
	p := netip.MustParsePrefix
	list := kernel.Objects{
		&kernel.Bridge{Name: "br0"},
		&kernel.Veth{Name: "veth1", PeerSide: kernel.Container, PeerName: "fl1"},
		&kernel.Veth{Name: "other", PeerSide: kernel.Host, PeerName: "fl1"},
		&kernel.Route{Dst: p("10.0.0.5/32"), Link: "veth1"},
		&kernel.Sysctl{In: kernel.Container, Key: "net/ipv4/conf/fl1/arp_notify", Value: "1", Link: "fl1"},
		&kernel.Addr{In: kernel.Container, Link: "fl1", Prefix: p("10.0.0.5/24"), NoRoute: true},
		&kernel.Addr{In: kernel.Container, Link: "fl1", Prefix: p("fd00::5/64")},
		&kernel.Up{In: kernel.Container, Link: "fl1"},
		&kernel.Route{In: kernel.Container, Dst: p("0.0.0.0/0"), Link: "fl1"},
		&kernel.StackedLink{Type: "vlan", Name: "fl1", Parent: "eth9", VLAN: 5},
	}
	var got []string
	for _, o := range list.Moved("fl1", "eth3") {
		got = append(got, o.String())
	}
	want := []string{
		list[0].String(), "ip link add veth1 type veth peer name eth3 netns container", list[2].String(), list[3].String(),
		"sysctl -w net/ipv4/conf/eth3/arp_notify=1", "ip addr add 10.0.0.5/32 dev eth3", "ip addr add fd00::5/64 dev eth3",
		"ip link set eth3 up", "ip link add link eth9 name eth3 type vlan id 5",
	}
	want[4] = (&kernel.Sysctl{In: kernel.Container, Key: "net/ipv4/conf/eth3/arp_notify", Value: "1", Link: "eth3"}).String()
	want[8] = (&kernel.StackedLink{Type: "vlan", Name: "eth3", Parent: "eth9", VLAN: 5}).String()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := list[1].(*kernel.Veth).PeerName; got != "fl1" {
		t.Errorf("the original has changed: %s", got)
	}
}

// TestExistingBridge attaches to a bridge that somebody else created. The network leaves it in place.
func TestExistingBridge(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	kerneltest.Run(t, "ip", "link", "add", "br7", "address", "02:00:00:00:00:07", "type", "bridge")
	kerneltest.Run(t, "ip", "link", "set", "br7", "up")
	h.network("n1", `"com.docker.network.bridge.name":"br7"`, pool4)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`) // also the endpoint, which dockerd has forgotten
	h.nothingLeft()
	if got := kerneltest.Run(t, "ip", "link", "show", "br7"); !strings.Contains(got, "02:00:00:00:00:07") {
		t.Errorf("the bridge: %s", got)
	}
}

// TestSharedBridge removes a network while a container of another network is on its bridge, and then the other network.
func TestSharedBridge(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", `"bridge":"br7"`, pool4)
	h.network("n2", `"bridge":"br7"`, `"IPv4Data":[{"Pool":"10.21.0.0/24","Gateway":"10.21.0.1/24"}]`)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n2", "e1")+`,"Interface":{"Address":"10.21.0.5/24"}}`)
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`)
	kerneltest.Run(t, "ip", "link", "show", "br7")
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n2"}`)
	h.nothingLeft()
	if got := kerneltest.Run(t, "ip", "-br", "link"); strings.Contains(got, "br7") {
		t.Errorf("left: %s", got)
	}
}

// TestNetworkCreatedAgain repeats the creation of a network in use. The network still removes its bridge.
func TestNetworkCreatedAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", "", pool4)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	h.network("n1", "", pool4)
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`)
	if got := kerneltest.Run(t, "ip", "-br", "link"); strings.Contains(got, "fl-n1") {
		t.Errorf("left: %s", got)
	}
}

// TestRemoveBridge checks which bridges are removed.
func TestRemoveBridge(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	if err := kernel.RemoveBridge("br0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing bridge: %v", err)
	}
	for _, line := range []string{"add br0 type bridge", "add br1 group 1718353921 type bridge", "add br2 group 1718353921 type bridge", "add p0 master br1 type veth peer name p1"} {
		kerneltest.Run(t, append([]string{"ip", "link"}, strings.Fields(line)...)...)
	}
	must(t, kernel.RemoveBridge("br0"))
	if err := kernel.RemoveBridge("br1"); err == nil || !strings.Contains(err.Error(), "p0 is still a port") {
		t.Errorf("a bridge with a port: %v", err)
	}
	must(t, kernel.RemoveBridge("br2"))
	if got := kerneltest.Run(t, "ip", "-br", "link", "show", "type", "bridge"); !strings.Contains(got, "br0") || !strings.Contains(got, "br1") || strings.Contains(got, "br2") {
		t.Errorf("left: %s", got)
	}
}

// ports returns the published ports of the only endpoint as text.
func (h *host) ports() string {
	var out []string
	r := h.record()
	for _, p := range r.Parts[r.Last("portmap")].Ports {
		out = append(out, fmt.Sprintf("%d->%d/%s", p.HostPort, p.ContainerPort, p.Protocol))
	}
	return strings.Join(out, " ")
}

// TestPortsInUse publishes ports while programs of the host listen at some.
func TestPortsInUse(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, address := range []string{"127.0.0.1:8080", ":60999", ":65535"} {
		l, err := net.Listen("tcp", address)
		must(t, err)
		defer l.Close()
	}
	c, err := net.ListenPacket("udp", ":60999")
	must(t, err)
	defer c.Close()
	h.network("n1", "", pool4)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	h.call("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[
		{"Proto":6,"Port":1,"HostPort":8080,"HostPortEnd":8090},{"Proto":6,"Port":2},{"Proto":17,"Port":3},{"Proto":6,"Port":4},{"Proto":132,"Port":5}]}}`)
	if got, want := h.ports(), "8081->1/tcp 60998->2/tcp 60998->3/udp 60997->4/tcp 60999->5/sctp"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	h.fails("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[{"Proto":6,"Port":1,"HostPort":8080,"HostPortEnd":8081},{"Proto":6,"Port":1,"HostPort":8080,"HostPortEnd":8081}]}}`,
		"no port from 8080 to 8081 of the host is free")
	h.call("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[
		{"Proto":6,"Port":1,"HostPort":9000,"HostPortEnd":9009},{"Proto":6,"Port":2,"HostPort":9000}]}}`)
	if p := h.ports(); p != "9001->1/tcp 9000->2/tcp" {
		t.Errorf("a port with a choice and one without: %s", p)
	}
	for _, port := range []string{`"HostPort":65535`, `"HostPort":8080,"HostIP":"127.0.0.1"`} {
		h.fails("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[{"Proto":6,"Port":1,`+port+`}]}}`,
			"a program of the host listens at port")
	}
	h.call("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[{"Proto":6,"Port":1,"HostPort":8080,"HostIP":"127.0.0.2"}]}}`)
	// That a port cannot be tried does not mean that it is in use.
	h.fails("NetworkDriver.ProgramExternalConnectivity", `{`+ids("n1", "e1")+`,"Options":{"com.docker.network.portmap":[{"Proto":6,"Port":1,"HostPort":65535,"HostPortEnd":65537}]}}`,
		"is port 65536 of the host free?")
}

// TestFailedEndpoint checks that a failed CreateEndpoint leaves nothing.
func TestFailedEndpoint(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", "", pool4)
	h.network("n2", `"type":"macvlan","parent":"none0"`, pool4)
	h.fails("NetworkDriver.CreateEndpoint", `{`+ids("n2", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`, "no interface none0 in the host")
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e2")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	name := h.record().IfName
	h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e2")+`}`)
	kerneltest.Run(t, "ip", "link", "add", name, "type", "bridge") // somebody else has the name
	h.fails("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e2")+`,"Interface":{"Address":"10.20.0.5/24"}}`, name+" already exists")
	kerneltest.Run(t, "ip", "link", "show", name)
	kerneltest.Run(t, "ip", "link", "del", name)
	h.nothingLeft()
}

// unsteady is an Exec that fails: an ADD after its last change, and a DEL before its first one.
type unsteady struct {
	invoke.ListExec
	failing bool
}

func (u *unsteady) ExecList(ctx context.Context, members []invoke.Member, args *invoke.Args) (out []byte, failed int, err error) {
	if !u.failing || args.Command != "DEL" {
		out, failed, err = u.ListExec.ExecList(ctx, members, args)
	}
	if u.failing && err == nil {
		return nil, 0, errors.New("too many open files")
	}
	return out, failed, err
}

// TestFailedUndo checks that an endpoint can be removed later if neither its creation nor its removal succeeded.
func TestFailedUndo(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	exec := &unsteady{ListExec: h.options.Exec.(invoke.ListExec), failing: true}
	h.options.Exec = exec
	h.start()
	h.network("n1", "", pool4)
	h.fails("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`, "too many open files")
	h.record() // which the failed removal left
	exec.failing = false
	h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e1")+`}`)
	h.nothingLeft()
}

// TestLostNetworkFile removes an endpoint and its network after the driver's files about the network are lost.
func TestLostNetworkFile(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", "", pool4)
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e1")+`,"Interface":{"Address":"10.20.0.5/24"}}`)
	h.join("n1", "e1", kerneltest.Netns(t), "10.20.0.5/24")
	h.call("NetworkDriver.CreateEndpoint", `{`+ids("n1", "e2")+`,"Interface":{"Address":"10.20.0.6/24"}}`)
	must(t, os.RemoveAll(h.options.LibDir))
	h.call("NetworkDriver.Leave", `{`+ids("n1", "e1")+`}`)
	h.call("NetworkDriver.DeleteEndpoint", `{`+ids("n1", "e1")+`}`)
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`)
	left, err := filepath.Glob(filepath.Join(h.options.RunDir, "docker", "endpoints", "*"))
	if list, err2 := h.records.List(""); err != nil || err2 != nil || len(left)+len(list) > 0 {
		t.Errorf("left endpoints: %v, %v; left records: %v, %v", left, err, list, err2)
	}
	if got := kerneltest.Run(t, "ip", "-br", "link", "show", "type", "veth"); strings.TrimSpace(got) != "" {
		t.Errorf("left links: %s", got)
	}
}
