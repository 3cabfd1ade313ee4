package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// joins is the number of nodes that join while a program is measured.
const joins = 9

// firstPackets creates a Node and starts a program on its host, again and again. It returns the times from the creation
// until a packet has gone from a pod's address on another node to one on the new node and back, in ascending order.
func (c *cluster) firstPackets(t *testing.T, n, joining *host, side string, node int) (times []time.Duration) {
	t.Helper()
	api := c.newAPI(t)
	for h, address := range map[*host]netip.Addr{n: scaleAddress(0), joining: scaleAddress(node)} {
		h.shell(t, "ip address replace "+address.String()+"/32 dev lo")
	}
	for range joins {
		answered := echo(t, n, joining, scaleAddress(0), scaleAddress(node))
		began := time.Now()
		if err := api.create(t.Context(), "/api/v1/nodes", newNode(node)); err != nil {
			t.Fatal(err)
		}
		pid := c.startSide(t, joining, side, node)
		times = append(times, answered().Sub(began).Round(time.Millisecond))
		stopSide(t, joining, pid)
		removeTunnels(t, joining)
		joining.shell(t, "rm -rf /var/lib/fairlead /run/fairlead /run/flannel")
		c.mustKubectl(t, "delete", "node", fmt.Sprintf("n%d", node))
		kerneltest.Within(t, time.Minute, func() error {
			if strings.Contains(n.shell(t, "ip route show"), scaleCIDR(node)) {
				return errors.New(side + " has the route to a deleted node")
			}
			return nil
		})
	}
	slices.Sort(times)
	return times
}

// scaleAddress returns the address of a pod on a simulated node.
func scaleAddress(node int) netip.Addr {
	a := netip.MustParsePrefix(scaleCIDR(node)).Addr().As4()
	a[3] = 5
	return netip.AddrFrom4(a)
}

// echo sends a packet every 2 ms from one host to a server on another one. The function that it returns waits for the
// first answer, and returns its time.
func echo(t *testing.T, from, to *host, source, destination netip.Addr) (answered func() time.Time) {
	t.Helper()
	server, client := to.listenUDP(t, destination, 7000), from.listenUDP(t, source, 0)
	go func() {
		for b := make([]byte, 64); ; {
			n, a, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], a)
		}
	}()
	stop := make(chan struct{})
	go func() {
		for tick := time.Tick(2 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick: // without a route, the error says so
				_, _ = client.WriteToUDPAddrPort([]byte("first"), netip.AddrPortFrom(destination, 7000))
			}
		}
	}()
	type answer struct {
		at  time.Time
		err error
	}
	first := make(chan answer, 1)
	if err := client.SetReadDeadline(time.Now().Add(kerneltest.Slow(2 * time.Minute))); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _, err := client.ReadFromUDPAddrPort(make([]byte, 64))
		first <- answer{time.Now(), err}
	}()
	return func() time.Time {
		t.Helper()
		a := <-first
		close(stop)
		if err := errors.Join(a.err, server.Close(), client.Close()); err != nil {
			t.Fatal(err)
		}
		return a.at
	}
}

// listenUDP opens a UDP socket on the host.
func (h *host) listenUDP(t *testing.T, a netip.Addr, port uint16) (c *net.UDPConn) {
	t.Helper()
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", h.pid))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
