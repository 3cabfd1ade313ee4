package dhcpd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/rpc"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// serve returns a daemon on a socket. stop ends it as SIGTERM does.
func serve(t *testing.T, o Options) (d *Daemon, socket string, stop func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	o.SocketPath = socket
	d = start(t, o)
	l, err := d.Listen(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- d.Serve(ctx, l) }()
	return d, socket, func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(kerneltest.Slow(10 * time.Second)):
			t.Fatal("the daemon does not end")
		}
		d.Close()
	}
}

func dial(t *testing.T, socket string) *rpc.Client {
	t.Helper()
	c, err := rpc.DialHTTP("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// referenceArgs and referenceResult are the reference plugin's wire types.
type referenceArgs struct {
	ContainerID, Netns, IfName, Args, Path, NetnsOverride string
	StdinData                                             []byte
}

type referenceResult struct {
	CNIVersion string
	Interfaces []*struct{ Name, Mac, Sandbox string }
	IPs        []*struct {
		Interface *int
		Address   net.IPNet
		Gateway   net.IP
	}
	Routes []*struct {
		Dst      net.IPNet
		GW       net.IP
		Priority int
	}
}

// TestServe talks to the daemon with the RPC library that the reference plugin uses.
func TestServe(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.50,255.255.255.0,1h")
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	_, socket, stop := serve(t, Options{})
	defer stop()
	c := dial(t, socket)
	defer c.Close()
	args := &referenceArgs{ContainerID: r.ContainerID, Netns: r.Netns, IfName: r.IfName, StdinData: r.Stdin, NetnsOverride: "x"}
	var res referenceResult
	if err := c.Call("DHCP.Allocate", args, &res); err != nil {
		t.Fatal(err)
	}
	if len(res.IPs) != 1 || res.IPs[0].Address.String() != "10.0.0.50/24" || res.IPs[0].Gateway.String() != "10.0.0.1" || len(res.Routes) != 1 || res.Routes[0].Dst.String() != "0.0.0.0/0" {
		t.Errorf("%+v", res)
	}
	if list, err := List(socket); err != nil || len(list) != 1 || list[0].State != "held" || list[0].Addresses[0] != "10.0.0.50/24" || list[0].Expire.Before(time.Now()) {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if err := c.Call("DHCP.Nonsense", args, &struct{}{}); err == nil || !strings.HasPrefix(err.Error(), "rpc: can't find method") {
		t.Errorf("an unknown method: %v", err)
	}
	args.StdinData = []byte("{")
	if err := c.Call("DHCP.Allocate", args, &res); err == nil {
		t.Error("an invalid configuration was accepted")
	}
	args.StdinData = r.Stdin
	if err := c.Call("DHCP.Release", args, &struct{}{}); err != nil {
		t.Fatal(err)
	}
}

// failingListener fails to accept the first connections, as a process with too many open files does.
type failingListener struct {
	net.Listener
	failures chan error
}

func (l failingListener) Accept() (net.Conn, error) {
	select {
	case err := <-l.failures:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

func TestAcceptErrors(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	d := start(t, Options{SocketPath: socket})
	defer d.Close()
	l, err := d.Listen(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	failing := failingListener{l, make(chan error, 2)}
	failing.failures <- &net.OpError{Op: "accept", Net: "unix", Err: syscall.EMFILE}
	failing.failures <- &net.OpError{Op: "accept", Net: "unix", Err: syscall.ENFILE}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(t.Context(), failing) }()
	if list, err := List(socket); err != nil || len(list) != 0 {
		t.Errorf("after errors that pass: %v, %v", list, err)
	}
	_ = l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the listener was closed: %v", err)
	}
}

// TestDisconnectAndStop covers, over the socket, a plugin that is killed while it waits, a daemon that is stopped
// meanwhile, and a caller with another protocol.
func TestDisconnectAndStop(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24") // no server
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	d, socket, stop := serve(t, Options{})
	waits := func() bool { s := d.States(); return len(s) == 1 && s[0].State == "waiting" }
	c := dial(t, socket)
	c.Go("DHCP.Allocate", r.args(), &Result{}, nil)
	// Wait until the lease waits.
	kerneltest.Until(t, waits)
	_ = c.Close()
	// Wait until the lease is dropped.
	kerneltest.Until(t, func() bool { return len(d.States()) == 0 })

	other, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if response, _ := io.ReadAll(other); !strings.HasPrefix(string(response), "HTTP/1.0 405 ") {
		t.Errorf("answer to GET: %q", response)
	}
	_ = other.Close()

	c = dial(t, socket)
	defer c.Close()
	call := c.Go("DHCP.Allocate", r.args(), &Result{}, nil)
	// Wait until the lease waits.
	kerneltest.Until(t, waits)
	stop()
	if <-call.Done; call.Error == nil {
		t.Error("an address from a daemon that ended")
	}
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("the socket is still there")
	}
}

// TestMacvlan checks an interface that shares its parent with others.
func TestMacvlan(t *testing.T) {
	kerneltest.Needs(t, "macvlan")
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	kerneltest.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	kerneltest.Run(t, "ip", "link", "set", "up1", "master", "br0", "up")
	kerneltest.Run(t, "ip", "link", "set", "up0", "up")
	d := start(t, Options{})
	defer d.Close()
	seen := map[string]bool{}
	for _, id := range []string{"one", "two"} {
		r := request(id, kerneltest.Netns(t), "")
		if out, err := exec.Command("ip", "link", "add", "link", "up0", "name", "eth0", "netns", r.Netns, "type", "macvlan", "mode", "bridge").CombinedOutput(); err != nil {
			t.Fatalf("create a macvlan: %s", out)
		}
		seen[get(t, d, r).IPs[0].Address.String()] = true
		kerneltest.In(t, r.Netns, "ping", "-c1", "-W3", "10.0.0.1")
	}
	if len(seen) != 2 {
		t.Errorf("addresses: %v", seen)
	}
}
