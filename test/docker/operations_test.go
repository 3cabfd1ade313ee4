package docker

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// get fetches a page from a host until the answer is as expected.
func get(t *testing.T, h *lab.Host, url, want string) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		out, err := h.Run(t.Context(), "curl", "--silent", "--max-time", "2", url)
		if err == nil && strings.TrimSpace(out) != want {
			err = fmt.Errorf("%s answers %q, want %q", url, out, want)
		}
		return err
	})
}

// wget fetches a page from a container.
func (m *machine) wget(container, url, want string) {
	m.t.Helper()
	if got := m.in(container, "wget", "-q", "-O", "-", url); got != want {
		m.t.Errorf("%s from %s: %q, want %q", url, container, got, want)
	}
}

// ok checks that list, repair and doctor show the endpoints, all in order.
func (m *machine) ok(endpoints int) {
	m.t.Helper()
	kerneltest.Eventually(m.t, func() error {
		out := m.fairlead("list")
		// Those that Docker does not know stay for the grace period.
		if n, all := strings.Count(out, " ok"), strings.Count(out, "\ndocker-"); n != endpoints || all != endpoints {
			return fmt.Errorf("%d of %d endpoints are ok, want %d:\n%s", n, all, endpoints, out)
		}
		return nil
	})
	if out := m.fairlead("repair", "--dry-run"); strings.Count(out, "nothing to do") != endpoints {
		m.t.Errorf("repair --dry-run: %s", out)
	}
	for line := range strings.Lines(m.fairlead("list")) {
		if f := strings.Fields(line); strings.HasSuffix(strings.TrimSpace(line), " ok") {
			m.fairlead("check", f[0], f[1][:12])
		}
	}
	if out := m.fairlead("gc", "--all", "--dry-run"); !strings.Contains(out, "Nothing is left behind") {
		m.t.Errorf("gc: %s", out)
	}
	if out := m.fairlead("doctor"); !strings.Contains(out, "Nothing is wrong") {
		m.t.Errorf("doctor: %s", out)
	}
}

// TestBridgeNetworks runs containers on networks of the type bridge: between containers, with the host, and with
// another host.
func TestBridgeNetworks(t *testing.T) {
	m, outside := newLab(t)
	m.docker("network", "create", "--driver", "fairlead", "--ipam-driver", "fairlead", "--subnet", "10.20.0.0/24", "--aux-address", "other=10.20.0.2", "web")
	m.docker("network", "create", "--driver", "fairlead", "--ipv6", "--subnet", "10.21.0.0/24", "--subnet", "fd21::/64", "--gateway", "10.21.0.9", "six") // Docker's IPAM
	m.docker("network", "create", "--driver", "fairlead", "--internal", "--ipam-driver", "fairlead", "inside")
	m.run("one", "--network", "web", "--publish", "8080:80", "--publish", "127.0.0.1:8081:80", "--publish", "80", "--hostname", "one", "--network-alias", "www")
	m.run("two", "--network", "web", "--ip", "10.20.0.77", "--mac-address", "02:42:00:00:00:07", "--hostname", "two")

	t.Log("between containers, by name")
	m.wget("two", "http://one/", "one")
	m.wget("two", "http://www/", "one")
	m.in("one", "ping", "-c1", "-W2", "10.20.0.77")
	if got := m.in("two", "ip", "addr", "show", "eth0"); !strings.Contains(got, "10.20.0.77/24") || !strings.Contains(got, "02:42:00:00:00:07") {
		t.Errorf("two has %s", got)
	}
	t.Log("with the host, and beyond")
	m.in("one", "ping", "-c1", "-W2", outside.V4.String())
	m.in("one", "ping", "-c1", "-W2", m.V4.String())
	get(t, m.Host, "http://10.20.0.77/", "two")
	get(t, m.Host, "http://127.0.0.1:8080/", "one")
	get(t, m.Host, "http://127.0.0.1:8081/", "one")
	get(t, outside, "http://"+m.V4.String()+":8080/", "one")
	if out := m.fairlead("list"); !strings.Contains(out, "8080->80/tcp") || !strings.Contains(out, "60999->80/tcp") {
		t.Errorf("list shows the ports: %s", out)
	}
	m.run("own", "--publish", "80", "--hostname", "own") // on Docker's own bridge
	get(t, m.Host, "http://127.0.0.1:32768/", "own")
	get(t, m.Host, "http://127.0.0.1:60999/", "one")
	if _, err := m.try("run", "--rm", "--network", "web", "--publish", "8080:80", "box", "echo"); err == nil || !strings.Contains(err.Error(), "8080") {
		t.Errorf("a port that is taken: %v", err)
	}
	t.Log("several networks")
	m.docker("network", "connect", "--ip", "10.21.0.50", "--ip6", "fd21::50", "six", "one")
	m.docker("network", "connect", "six", "two")
	m.docker("network", "connect", "inside", "two")
	m.wget("two", "http://[fd21::50]/", "one")
	m.in("two", "ping", "-6", "-c1", "-W2", "one")
	m.in("one", "ping", "-c1", "-W2", "10.21.0.9") // the gateway
	get(t, m.Host, "http://[fd21::50]/", "one")
	m.ok(5)
	t.Log("an internal network")
	m.run("three", "--network", "inside", "--hostname", "three")
	m.wget("two", "http://three/", "three")
	m.fails("three", "ping", "-c1", "-W1", outside.V4.String())
	m.fails("three", "ping", "-c1", "-W1", m.V4.String())
	m.fails("one", "ping", "-c1", "-W1", "three")

	t.Log("disconnected")
	m.docker("network", "disconnect", "web", "one")
	if got := m.in("one", "ip", "addr"); strings.Contains(got, "10.20.0.") {
		t.Errorf("one still has %s", got)
	}
	get(t, outside, "http://"+m.V4.String()+":8080/", "one") // published on the other network now
	m.docker("network", "connect", "web", "one")
	m.wget("two", "http://one/", "one")
	m.docker("restart", "--time", "0", "two")
	m.wget("two", "http://one/", "one")
	m.docker("network", "disconnect", "--force", "web", "two")
	time.Sleep(kerneltest.Slow(7 * time.Second)) // longer than the driver leaves unknown objects alone
	if _, err := os.Stat(m.Path("/var/lib/cni/fairlead/docker/addresses/10.20.0.0-24/10.20.0.2")); err != nil {
		t.Errorf("the auxiliary address was freed: %v", err)
	}
	m.remove()
	m.nothingLeft()
}

// TestUnknownOption checks that Docker's user sees which options there are.
func TestUnknownOption(t *testing.T) {
	m, _ := newLab(t)
	_, err := m.try("network", "create", "--driver", "fairlead", "--opt", "parent=eth0", "bad")
	if err == nil || !strings.Contains(err.Error(), `option "parent": a network of type bridge has no such option: want one of anti-spoof, bridge`) {
		t.Errorf("an unknown option: %v", err)
	}
	m.nothingLeft()
}
