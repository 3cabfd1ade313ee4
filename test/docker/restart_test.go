package docker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRestarts restarts the driver, dockerd, and the host, while containers run.
func TestRestarts(t *testing.T) {
	m, outside := newLab(t)
	m.docker("network", "create", "--driver", "fairlead", "--ipam-driver", "fairlead", "web")
	m.run("one", "--network", "web", "--publish", "8080:80", "--hostname", "one", "--restart", "always")
	m.run("two", "--network", "web", "--hostname", "two", "--restart", "always")
	published := "http://" + m.V4.String() + ":8080/"
	works := func(after string) {
		t.Helper()
		t.Log("after", after)
		m.wget("two", "http://one/", "one")
		get(t, outside, published, "one")
		m.ok(2)
	}
	works("the start")
	before := m.docker("inspect", "--format", "{{.State.Pid}}", "one", "two")
	m.plugin.Kill()
	m.startPlugin()
	works("kill -9 of the driver")
	if now := m.docker("inspect", "--format", "{{.State.Pid}}", "one", "two"); now != before {
		t.Errorf("the driver's restart restarted containers: %s, then %s", before, now)
	}
	must(t, m.dockerd.Stop(kerneltest.Slow(20*time.Second)))
	m.startDocker()
	works("a restart of dockerd")
	m.dockerd.Kill()
	m.startDocker()
	works("kill -9 of dockerd")
	m.dockerd.Kill()
	m.plugin.Kill()
	m.startPlugin()
	m.startDocker()
	works("kill -9 of both")
	m.reboot()
	works("a restart of the host")
	m.remove()
	m.nothingLeft()
}

// reboot ends everything on the host, and starts it again with the same files in /var/lib, and nothing in /run.
func (m *machine) reboot() {
	m.t.Helper()
	for _, p := range []*lab.Process{m.dockerd, m.plugin, m.containerd} {
		p.Kill()
	}
	m.killContainers()
	m.containerd = nil
	out, err := m.Run(m.t.Context(), "sh", "-c", `nft flush ruleset; for l in $(ip -o link | awk -F'[ :@]+' '$2 != "lo" && $2 != "eth0" {print $2}'); do ip link del $l; done
		awk '$5 ~ "^/run/" {print $5}' /proc/self/mountinfo | tac | xargs -r umount; rm -rf /run/* && mkdir /run/netns`)
	if err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	must(m.t, m.otherBoot())
	m.startPlugin()
	m.startDocker()
}

// otherBoot checks that no record is left: the records of a real host end with its boot.
func (m *machine) otherBoot() error {
	left, err := filepath.Glob(m.Path("/run/fairlead"))
	if err == nil && len(left) > 0 {
		m.t.Errorf("left in /run: %v", left)
	}
	return err
}

// TestKills kills dockerd or the driver at random moments of random operations. Then nothing is left.
func TestKills(t *testing.T) {
	m, _ := newLab(t)
	rounds := 24
	for i := range rounds {
		m.docker("network", "create", "--driver", "fairlead", "--ipam-driver", "fairlead", "extra")
		var group sync.WaitGroup
		for _, work := range [][]string{
			{"network", "create", "--driver", "fairlead", "--ipam-driver", "fairlead", "more"},
			{"run", "--detach", "--name", "c1", "--network", "extra", "--publish", "8080:80", "box", "sleep", "1000"},
			{"run", "--rm", "--name", "c2", "--network", "extra", "box", "ping", "-c1", "127.0.0.1"},
			{"network", "rm", "extra"},
		} {
			group.Go(func() {
				time.Sleep(rand.N(kerneltest.Slow(300 * time.Millisecond)))
				_, _ = m.try(work...) // it may fail
			})
		}
		time.Sleep(rand.N(kerneltest.Slow(900 * time.Millisecond)))
		switch i % 3 {
		case 0:
			m.plugin.Kill()
			m.startPlugin()
			group.Wait()
		case 1:
			m.dockerd.Kill()
			group.Wait()
			m.startDocker()
		case 2:
			m.plugin.Kill()
			m.dockerd.Kill()
			group.Wait()
			m.startPlugin()
			m.startDocker()
		}
		m.clean()
	}
	m.nothingLeft()
	if out := m.fairlead("gc", "--all", "--dry-run"); !strings.Contains(out, "Nothing is left behind") {
		t.Errorf("gc: %s", out)
	}
}

// clean removes what Docker knows. A killed dockerd may need two attempts.
func (m *machine) clean() {
	m.t.Helper()
	kerneltest.Eventually(m.t, func() error {
		out, err := m.try("ps", "--all", "--quiet")
		if all := strings.Fields(out); err == nil && len(all) > 0 {
			_, err = m.try(append([]string{"rm", "--force"}, all...)...)
		}
		if err != nil {
			return err
		}
		out, err = m.try("network", "ls", "--quiet", "--filter", "driver=fairlead")
		if all := strings.Fields(out); err == nil && len(all) > 0 {
			_, err = m.try(append([]string{"network", "rm"}, all...)...)
		}
		return err
	})
}

// TestForgotten creates objects that dockerd does not know, as if it had been killed after each call. The driver removes
// them, and keeps what dockerd knows.
func TestForgotten(t *testing.T) {
	m, _ := newLab(t)
	m.docker("network", "create", "--driver", "fairlead", "--ipam-driver", "fairlead", "--subnet", "10.20.0.0/24", "web")
	m.run("one", "--network", "web", "--publish", "8080:80")
	m.call("RequestAddress", "Ipam", `{"PoolID":"10.20.0.0-24","Address":"10.20.0.99"}`)
	m.call("RequestPool", "Ipam", `{"Pool":"10.77.0.0/24"}`)
	m.call("RequestAddress", "Ipam", `{"PoolID":"10.77.0.0-24"}`)
	m.call("CreateNetwork", "Network", `{"NetworkID":"forgotten","IPv4Data":[{"Pool":"10.77.0.0/24","Gateway":"10.77.0.1/24"}]}`)
	m.call("CreateEndpoint", "Network", `{"NetworkID":"forgotten","EndpointID":"e1","Interface":{"Address":"10.77.0.2/24"}}`)
	m.call("Join", "Network", `{"NetworkID":"forgotten","EndpointID":"e1","SandboxKey":"/run/nowhere"}`)
	m.call("ProgramExternalConnectivity", "Network", `{"NetworkID":"forgotten","EndpointID":"e1","Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostPort":8088}]}}`)
	if out := m.fairlead("list"); !strings.Contains(out, "docker-forgotten") {
		t.Errorf("list: %s", out)
	}
	kerneltest.Within(t, 30*time.Second, func() error {
		if out := m.fairlead("list"); strings.Contains(out, "docker-forgotten") {
			return errors.New(out)
		}
		_, err := os.Stat(m.Path("/var/lib/cni/fairlead/docker/addresses/10.20.0.0-24/10.20.0.99"))
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("an address is left: %w", err)
		}
		return nil
	})
	m.ok(1)
	get(t, m.Host, "http://127.0.0.1:8080/", m.in("one", "cat", "/tmp/index.html"))
	m.remove()
	m.nothingLeft()
}

// call calls a method of the driver, as dockerd does.
func (m *machine) call(method, driver, request string) {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), "curl", "--silent", "--fail", "--unix-socket", "/run/docker/plugins/fairlead.sock", "--data", request, "http://driver/"+driver+"Driver."+method)
	if err != nil || strings.Contains(out, `"Err"`) {
		m.t.Fatalf("%s: %s, %v", method, out, err)
	}
}
