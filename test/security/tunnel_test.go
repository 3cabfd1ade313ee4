package security

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// applyAsAgent creates a tunnel as the agent's reconciler does.
func applyAsAgent(e *kernel.Engine, o kernel.Object) error {
	r := reconcile.New(e, kernel.Host, reconcile.Owner{Protocol: 103, Alias: "fairlead-agent ", Table: "fairlead-agent"})
	return r.Reconcile(kernel.Objects{o}).Err()
}

// TestRogueRouterThroughTunnel checks that no frame from the tunnel gives the host a default router. VXLAN has no
// authentication: a container that can send to the host's port can inject frames into the tunnel link.
func TestRogueRouterThroughTunnel(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a")
	m.must("ADD", "ptp", "a", `{"cniVersion": "1.0.0", "name": "n", "type": "ptp", "ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "10.1.0.0/24"}}`)
	link := strings.Fields(kerneltest.Run(t, "sh", "-c", "ip -br link show type veth | sed 's/@.*//'"))[0]
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	v := &kernel.VXLAN{Name: "fl-vx.7", ID: 7, Port: 8472, Local: netip.MustParseAddr("10.1.0.1"), Link: link, MAC: "02:00:00:00:00:07", MTU: 1400, OwnerTag: "fairlead-agent vxlan"}
	if err := applyAsAgent(e, v); err != nil {
		t.Fatal(err)
	}
	send := func() {
		frame := ethernet(mac(t, "33:33:00:00:00:01"), mac(t, "02:00:00:00:00:08"), 0x86dd, advertisement("fe80::ff:fe00:8"))
		head := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, 7<<8) // RFC 7348, section 5
		time.Sleep(kerneltest.Slow(50 * time.Millisecond))
		err := kerneltest.Inside(m.Netns["a"], func() error {
			c, err := net.Dial("udp", "10.1.0.1:8472")
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(append(head, frame...))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(kerneltest.Slow(100 * time.Millisecond))
	}
	acceptedRoutes := func() string {
		return kerneltest.Run(t, "sh", "-c", "ip -6 route | grep -E '^default|bad' || true; ip -6 -o addr show dev fl-vx.7")
	}
	send()
	if got := acceptedRoutes(); got != "" {
		t.Errorf("the host accepted a router advertisement from a container:\n%s", got)
	}
	// The frame arrives: without the sysctls the host accepts it.
	kerneltest.Run(t, "sysctl", "-qw", "net/ipv6/conf/fl-vx.7/forwarding=0", "net/ipv6/conf/fl-vx.7/accept_ra=2")
	kerneltest.Run(t, "ip", "-6", "addr", "add", "fe80::7/64", "dev", "fl-vx.7", "nodad")
	kerneltest.Eventually(t, func() error {
		send()
		if got := acceptedRoutes(); !strings.Contains(got, "default") {
			return fmt.Errorf("without the sysctls the host does not accept it either: the attack does not work in this test: %s", got)
		}
		return nil
	})
	d, err := e.Compare(kernel.Objects{v})
	if err != nil || len(d) == 0 {
		t.Errorf("CHECK does not report the changed sysctls: %v, %v", d, err)
	}
	if err := applyAsAgent(e, v); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(kerneltest.Run(t, "cat", "/proc/sys/net/ipv6/conf/fl-vx.7/accept_ra")); got != "0" {
		t.Errorf("accept_ra is %s after the repair", got)
	}
}
