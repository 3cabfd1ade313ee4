package delegate_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/skel"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answeringAgent serves an agent's socket that answers every request with success, and calls asked before.
func answeringAgent(t *testing.T, asked func()) {
	t.Helper()
	run := t.TempDir()
	t.Setenv(local.RunVariable, run)
	t.Setenv(local.LibVariable, t.TempDir())
	l, err := net.Listen("unix", local.Open("", run).Socket())
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadBytes('\n')
			asked()
			fmt.Fprintf(conn, `{"v":%d,"result":{}}`+"\n", local.ProtocolVersion)
			_ = conn.Close()
		}
	}()
}

// netnsOfADD runs ADD of the plugin fairlead-net with a plugin ptp that does nothing but call inside, in the namespace in
// which it would create a container's link, with its configuration.
func netnsOfADD(t *testing.T, ctx context.Context, network string, inside func(here *netns.Handle, conf string)) error {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, filepath.Join(dir, "ptp")))
	ptp := skel.Plugin{Name: "ptp", Funcs: skel.CNIFuncs{Add: func(_ context.Context, args *skel.CmdArgs) (*cni.Result, error) {
		here, err := netns.Current()
		if err == nil {
			defer here.Close()
			inside(here, string(args.StdinData))
		}
		return &cni.Result{}, err
	}}}
	p := delegate.Network(&plugin.Exec{Plugins: []skel.Plugin{ptp}})
	_, err = p.Funcs.Add(ctx, &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Path: dir,
		StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net", "network": "` + network + `"}`)})
	return err
}

// testNetwork returns the name of a network that no other test has, and removes its namespace at the end.
func testNetwork(t *testing.T) string {
	name := fmt.Sprintf("held-%d", os.Getpid())
	t.Cleanup(func() { _ = netns.Remove("", local.NetnsPath(name)) })
	return name
}

// TestNoADDOnTheHost lets the agent report a namespace that it has removed since, until the caller gives up. A container of an
// isolated network must not be attached to the host's namespace.
func TestNoADDOnTheHost(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int32
	answeringAgent(t, func() {
		if asked.Add(1) == 5 {
			cancel()
		}
	})
	err := netnsOfADD(t, ctx, testNetwork(t), func(*netns.Handle, string) { t.Error("the ADD runs in the host's namespace") })
	if err == nil || cni.AsError(err).Code != cni.CodeTryAgainLater || !strings.Contains(err.Error(), "network held-") || asked.Load() < 5 {
		t.Errorf("got %v after %d requests", err, asked.Load())
	}
}

// TestADDHoldsTheNetwork attaches a container while the agent removes the network's namespace, and creates it again when it is
// asked. ADD runs in the new one, and nobody else gets its lock meanwhile.
func TestADDHoldsTheNetwork(t *testing.T) {
	network := testNetwork(t)
	path := local.NetnsPath(network)
	answeringAgent(t, func() { _ = netns.Create("", path) })
	must(t, netns.Create("", path))
	old, err := netns.Open(path)
	must(t, err)
	defer old.Close()
	if free, err := old.TryLock(); !free {
		t.Fatalf("not locked: %v", err)
	}
	removed := make(chan error)
	go func() {
		time.Sleep(kerneltest.Slow(50 * time.Millisecond)) // the plugin waits for the lock
		err := netns.Remove("", path)
		old.Unlock()
		removed <- err
	}()
	ran := false
	err = netnsOfADD(t, t.Context(), network, func(here *netns.Handle, _ string) {
		ran = true
		if !here.IsAt(path) {
			t.Error("the ADD runs in another namespace than the network's")
		}
		if free, err := here.TryLock(); free || err != nil {
			t.Errorf("another process can lock the namespace: %v", err)
		}
	})
	must(t, <-removed)
	if err != nil || !ran {
		t.Errorf("got %v, ran: %v", err, ran)
	}
	here, err := netns.Open(path)
	must(t, err)
	defer here.Close()
	if free, err := here.TryLock(); !free || err != nil {
		t.Errorf("the namespace is locked after the ADD: %v", err)
	}
}

// TestFirstMTUWithPeer attaches the first container of a network whose namespace exists already, because a peer needs it. Its
// link gets the network's MTU, which the agent tells when this host joins the network.
func TestFirstMTUWithPeer(t *testing.T) {
	network := testNetwork(t)
	must(t, netns.Create("", local.NetnsPath(network)))
	answeringAgent(t, func() { _ = local.Open("", "").Write(&local.Network{Name: network, MTU: 1450}) })
	got := ""
	must(t, netnsOfADD(t, t.Context(), network, func(_ *netns.Handle, conf string) { got = conf }))
	if !strings.Contains(got, `"mtu":1450`) {
		t.Errorf("the link's configuration is %s: want the MTU 1450", got)
	}
}

// TestNetworksOwnNamespace verifies that the namespace of a network is not attached to the network as if it were a container.
func TestNetworksOwnNamespace(t *testing.T) {
	network := testNetwork(t)
	path := local.NetnsPath(network)
	must(t, netns.Create("", path))
	answeringAgent(t, func() {})
	p := delegate.Network(&plugin.Exec{})
	_, err := p.Funcs.Add(t.Context(), &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Netns: path,
		StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net", "network": "` + network + `"}`)})
	if err == nil || cni.AsError(err).Code != cni.CodeInvalidNetns || !strings.Contains(err.Error(), "of the network itself") {
		t.Errorf("got %v", err)
	}
}
