package kernel_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// TestContextEndsWaits checks that each wait of an engine ends with the context, long before its own limit, and that
// Undo still removes everything.
func TestContextEndsWaits(t *testing.T) {
	kerneltest.Host(t)
	const mac = "02:00:00:00:00:77"
	for _, c := range [][]string{
		{"add", "parent", "type", "veth", "peer", "name", "end"}, {"set", "parent", "up"}, {"set", "end", "up"},
		{"add", "one", "link", "parent", "address", mac, "type", "macvlan"}, {"set", "one", "up"},
		{"add", "two", "link", "parent", "address", mac, "type", "macvlan"},
		{"add", "name", "idle0", "address", "02:00:00:00:00:66", "type", "bridge"},
	} {
		kerneltest.Run(t, append([]string{"ip", "link"}, c...)...)
	}
	pair := func(name string) *kernel.Veth {
		return &kernel.Veth{Name: name, MAC: "02:00:00:00:00:01", PeerName: "eth0", PeerMAC: "02:00:00:00:00:02", PeerSide: kernel.Container, Master: "idle0"}
	}
	path := filepath.Join(t.TempDir(), "created")
	file := &kernel.Command{Probe: []string{"sh", "-c", "test -e " + path + " || exit 2"}, Do: []string{"touch", path}, Undo: []string{"rm", path}}
	for what, list := range map[string]kernel.Objects{
		"a hardware address in use": {pair("first"), file, &kernel.Up{Link: "two", RetryWhileTaken: true}},
		"a command that hangs":      {pair("first"), &kernel.Command{Probe: []string{"sh", "-c", "exit 2"}, Do: []string{"sleep", "100"}, Undo: []string{"true"}}},
		"a bridge that is down": {
			pair("first"), &kernel.Up{Link: "first"}, &kernel.Up{In: kernel.Container, Link: "eth0"},
			&kernel.Addr{In: kernel.Container, Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.2/24")},
		},
	} {
		netns := kerneltest.Netns(t)
		before := linkNames(t)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("the caller has gone"))
		e := open(t, netns, kernel.Options{Context: ctx})
		began := time.Now()
		err := e.Apply(list)
		if err == nil || err.Error() == "" || !errors.Is(err, context.Cause(ctx)) {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > kerneltest.Slow(10*time.Second) {
			t.Errorf("%s: the call returned after %v", what, took)
		}
		if err := e.Undo(); err != nil {
			t.Errorf("%s: undo: %v", what, err)
		}
		if after := linkNames(t); after != before {
			t.Errorf("%s: the links before are %s, after %s", what, before, after)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: the command was not undone", what)
		}
		cancel()
	}
}

func linkNames(t *testing.T) (names string) {
	t.Helper()
	for line := range strings.Lines(kerneltest.Run(t, "ip", "-br", "link", "show")) {
		names += " " + strings.Fields(line)[0]
	}
	return names
}

// TestPortYetToBeEnabled checks that Compare waits for a port that the kernel enables some time after its link came up.
func TestPortYetToBeEnabled(t *testing.T) {
	kerneltest.Host(t)
	for _, c := range []string{"link add name br0 type bridge", "link set br0 up"} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	list := kernel.Objects{
		&kernel.Veth{Name: "veth1", MAC: "02:00:00:00:00:01", PeerName: "eth0", PeerMAC: "02:00:00:00:00:02", PeerSide: kernel.Container, Master: "br0"},
		&kernel.Up{Link: "veth1"}, &kernel.Up{In: kernel.Container, Link: "eth0"},
	}
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { // the kernel enables the port, too, once its link is up: maybe only after this
		kerneltest.Run(t, "bridge", "link", "set", "dev", "veth1", "state", "0")
		time.Sleep(50 * time.Millisecond)
		return strings.Contains(kerneltest.Run(t, "ip", "link", "show", "veth1"), "state UP") &&
			strings.Contains(kerneltest.Run(t, "bridge", "link", "show", "dev", "veth1"), "state disabled")
	})
	enable, began, enabled := enabler(t, e, "veth1"), time.Now(), make(chan error)
	go func() {
		time.Sleep(300 * time.Millisecond)
		enabled <- enable()
	}()
	if d, err := e.Compare(list); err != nil || len(d) > 0 || time.Since(began) < 300*time.Millisecond {
		t.Errorf("after %v: %v %v", time.Since(began), err, d)
	}
	if err := <-enabled; err != nil {
		t.Error(err)
	}
}

// enabler returns a function that enables a port of a bridge, without a process that would wait for a processor first.
func enabler(t *testing.T, e *kernel.Engine, port string) (enable func() error) {
	t.Helper()
	i, err := e.LinkIndex(kernel.Host, port)
	if err != nil {
		t.Fatal(err)
	}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, make([]byte, netlink.BufferSize))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	body := netlink.LinkMessage(i, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.Nest(unix.IFLA_PROTINFO, func(n *netlink.Buffer) { n.Uint8(unix.IFLA_BRPORT_STATE, kernel.PortForwarding) })
	return func() error {
		answer, err := c.Do([]netlink.Request{{Type: unix.RTM_SETLINK, Flags: unix.NLM_F_ACK, Body: body}})
		if err == nil {
			err = answer[0].Err
		}
		return err
	}
}

// TestVLANOfHost checks that ADD does not wait for a VLAN that the host itself uses.
func TestVLANOfHost(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "vlan")
	kerneltest.Host(t)
	for _, c := range []string{"link add up0 type veth peer name up1", "link add link up0 name up0.100 type vlan id 100", "link add link up0 name up0.101 type vlan id 101"} {
		kerneltest.Run(t, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	began := time.Now()
	err := e.Apply(kernel.Objects{&kernel.StackedLink{Type: "vlan", Name: "eth0", Parent: "up0", VLAN: 101, OwnerTag: owner.Tag()}})
	if !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "another link of up0 has VLAN 101: interface up0.101 of the host") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > kerneltest.Slow(2*time.Second) {
		t.Errorf("the error came after %v", took)
	}
}
