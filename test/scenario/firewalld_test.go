package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestFirewalld runs the real firewalld on the test's own bus. firewalld forwards nothing for a container until the
// plugin has put the container's address into a zone.
func TestFirewalld(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	env, stop := m.firewalld()
	addOutsideHost(t, m.Netns["b"])
	const conf = `{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM}`
	withFirewall, plain := conf+`, {"type": "firewall"}]}`, conf+`]}`
	firewallCmd := func(args ...string) string {
		cmd := exec.Command("firewall-cmd", args...)
		cmd.Env = append(os.Environ(), env)
		out, _ := cmd.CombinedOutput()
		return strings.TrimSpace(string(out))
	}
	m.must("add", plain, env)
	if out := kerneltest.In(t, m.Netns["a"], "sh", "-c", "ping -c1 -W1 192.0.2.9 || true"); !strings.Contains(out, "100% packet loss") {
		t.Errorf("firewalld forwards packets of an unknown source:\n%s", out)
	}
	m.must("del", plain, env)

	m.must("status", `{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "firewall", "backend": "firewalld"}]}`, env)
	m.must("add", withFirewall, env)
	kerneltest.In(t, m.Netns["a"], "ping", "-c1", "-W2", "192.0.2.9")
	m.must("check", withFirewall, env)
	if got := firewallCmd("--zone=trusted", "--list-sources"); got != "10.1.0.3/32" {
		t.Errorf("sources of the zone: %q", got)
	}
	firewallCmd("--zone=trusted", "--remove-source=10.1.0.3/32")
	if out, err := m.cni("check", withFirewall, "a", "", "", env); err == nil || !strings.Contains(out, "firewall-cmd --zone=trusted --add-source=10.1.0.3/32: is missing") {
		t.Errorf("check (%v): %s", err, out)
	}
	m.must("del", withFirewall, env)
	m.must("del", withFirewall, env)

	zone := conf + `, {"type": "firewall", "backend": "firewalld", "firewalldZone": "internal"}]}`
	m.must("add", zone, env)
	if got := firewallCmd("--zone=internal", "--list-sources"); got != "10.1.0.4/32" {
		t.Errorf("sources of the zone: %q", got)
	}
	m.must("del", zone, env)
	for _, z := range []string{"trusted", "internal"} {
		if got := firewallCmd("--zone="+z, "--list-sources"); got != "" {
			t.Errorf("left in zone %s: %q", z, got)
		}
	}
	bad := conf + `, {"type": "firewall", "firewalldZone": "nosuch"}]}`
	if out, err := m.cni("add", bad, "a", "", "", env); err == nil || !strings.Contains(out, "INVALID_ZONE") {
		t.Errorf("unknown zone (%v): %s", err, out)
	}
	m.must("del", bad, env)

	m.must("add", zone, env)
	stop()
	m.must("del", zone, env)
}

// must runs cni for container a and fails the test on an error.
func (m *machine) must(verb, conf, env string) {
	m.T.Helper()
	if out, err := m.cni(verb, conf, "a", "", "", env); err != nil {
		m.T.Fatalf("%s: %s", verb, out)
	}
}

// firewalld starts a bus and firewalld on it. It returns the environment variable with the bus's address, and a function
// that ends firewalld.
func (m *machine) firewalld() (env string, stop func()) {
	m.T.Helper()
	conf := filepath.Join(m.Dir, "bus.conf")
	text := `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=` + m.Dir + `/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow own="*"/><allow receive_sender="*"/></policy></busconfig>`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		m.T.Fatal(err)
	}
	env = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + m.Dir + "/bus"
	m.start("dbus-daemon", "--nofork", "--config-file="+conf)
	kerneltest.Eventually(m.T, func() error { return kerneltest.Listens(m.Dir + "/bus") })
	if err := os.Mkdir(m.Dir+"/etc", 0o700); err != nil {
		m.T.Fatal(err)
	}
	stop = m.start("env", env, "firewalld", "--nofork", "--nopid", "--log-file", m.Dir+"/log", "--system-config", m.Dir+"/etc")
	kerneltest.Within(m.T, 2*time.Minute, func() error { return exec.Command("env", env, "firewall-cmd", "--state").Run() })
	return env, stop
}

// start runs a program until the end of the test, or until the caller ends it.
func (m *machine) start(argv ...string) (stop func()) {
	m.T.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		m.T.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	m.T.Cleanup(stop)
	return stop
}

// addOutsideHost creates the address 192.0.2.9 on a network beyond the host's 192.0.2.1.
func addOutsideHost(t *testing.T, netns string) {
	for _, c := range []string{
		"ip link add up0 type veth peer name eth0 netns " + netns, "ip addr add 192.0.2.1/24 dev up0", "ip link set up0 up",
	} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
	for _, c := range []string{"ip addr add 192.0.2.9/24 dev eth0", "ip link set eth0 up"} {
		kerneltest.In(t, netns, strings.Fields(c)...)
	}
}
