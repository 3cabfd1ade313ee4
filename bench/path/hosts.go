package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/reference"
)

// host is one contender: a network namespace as the host, two containers on its bridge, and one outside.
type host struct {
	name    string
	connect func(host) error
	crowd   func(others int) error
	backend string
	keys    string // additional keys of the bridge plugin
	routed  bool   // the plugin ptp instead of bridge
	of      string // between hosts: name of the backend
	setup   string // of the manual topology: what its bridge has in addition
}

// bridges are ways in which packets between two ports of a bridge can pass the host's rules, after one without.
func bridges() []host {
	const off = "sysctl -qw net.bridge.bridge-nf-call-iptables=0\n"
	list := []host{
		{name: "bridge", setup: off},
		{name: "br_netfilter", setup: off + "ip link set br0 type bridge nf_call_iptables 1 nf_call_ip6tables 1"},
		{name: "isolated", setup: off + `for p in va vb; do bridge link set dev $p isolated on; done
			sysctl -qw net.ipv4.conf.br0.proxy_arp_pvlan=1 net.ipv4.conf.br0.send_redirects=0 net.ipv4.conf.all.send_redirects=0`},
		{name: "Fairlead (ptp)", connect: byPlugins, backend: "nftables", routed: true},
	}
	for i := range list {
		if list[i].connect == nil {
			list[i].connect = connectManually
		}
		list[i].crowd = func(int) error { return nil }
	}
	return list
}

func hosts() []host {
	list := []host{
		{name: "manual", connect: connectManually},
		{name: "Fairlead", connect: byPlugins, backend: "nftables"},
		{name: "Fairlead (ptp)", connect: byPlugins, backend: "nftables", routed: true},
		{name: "reference (nftables)", connect: byPlugins, backend: "nftables"},
		{name: "reference (iptables)", connect: byPlugins, backend: "iptables"},
	}
	if _, err := output(exec.Command("ip", "link", "add", "try0", "type", "netkit")); err == nil {
		list = slices.Insert(list, 3, host{name: "Fairlead (netkit)", connect: byPlugins, backend: "nftables", keys: `"linkType": "netkit", `})
	}
	for i := range list {
		h := list[i]
		list[i].crowd = map[string]func(int) error{"manual": func(int) error { return nil }, "reference (iptables)": h.copyIptables}[h.name]
		if list[i].crowd == nil {
			list[i].crowd = h.copyNFT
		}
	}
	return list
}

const (
	podA, podB, outside, hostAddr = "10.9.0.2", "10.9.0.3", "192.0.2.9", "192.0.2.1"
	echoPort, echoHostPort        = 80, 8080 // for a; b's host port is one more
	pinnedPort, pinnedHostPort    = 81, 8180
	iperfPort, iperfHostPort      = 5201, 5201
)

// ns returns the name of one of the contender's namespaces: "", "a", "b" or "world".
func (h host) ns(which string) string {
	return strings.NewReplacer(" ", "", "(", "", ")", "").Replace(h.of+h.name) + which
}

func (h host) in(which string, argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + h.ns(which), "--"}, argv...)...)
}

func (h host) sh(which, script string) (string, error) {
	return output(h.in(which, "sh", "-ec", script))
}

func output(c *exec.Cmd) (string, error) {
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(c.Args, " "), err, out.String(), problem.String())
	}
	return out.String(), nil
}

func prepare(list []host) ([]host, error) {
	for _, h := range list {
		if err := h.prepare(); err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
	}
	time.Sleep(time.Second) // wait for servers, and for IPv6 on new links
	return list, nil
}

func (h host) prepare() error {
	for _, which := range []string{"", "a", "b", "world"} {
		if _, err := output(exec.Command("ip", "netns", "add", h.ns(which))); err != nil {
			return err
		}
		if _, err := h.sh(which, "ip link set lo up"); err != nil {
			return err
		}
	}
	_, err := h.sh("", `ip link add up0 type veth peer name eth0 netns `+h.ns("world")+`
		ip addr add `+hostAddr+`/24 dev up0; ip link set up0 up; sysctl -qw net.ipv4.ip_forward=1`)
	if err == nil {
		_, err = h.sh("world", `ip addr add `+outside+`/24 dev eth0; ip link set eth0 up`)
	}
	if err == nil {
		err = h.connect(h)
	}
	if err != nil {
		return err
	}
	return h.serve()
}

func (h host) serve() error {
	for _, which := range []string{"a", "b", "world"} {
		if err := h.serveAt(which); err != nil {
			return err
		}
	}
	return nil
}

func (h host) serveAt(which string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, argv := range [][]string{{self, "serve", fmt.Sprint(":", echoPort)}, {"taskset", "-c", "0", self, "serve", fmt.Sprint(":", pinnedPort)}, {"iperf3", "-s", "-p", fmt.Sprint(iperfPort)}} {
		if err := h.in(which, argv...).Start(); err != nil {
			return err
		}
	}
	return nil
}

// connectManually creates the minimal topology manually: a bridge, two veth pairs, three rules.
func connectManually(h host) error {
	script := `ip link add br0 type bridge; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up`
	for which, addr := range map[string]string{"a": podA, "b": podB} {
		script += `
			ip link add v` + which + ` master br0 type veth peer name eth0 netns ` + h.ns(which) + `; ip link set v` + which + ` up
			nsenter --net=/run/netns/` + h.ns(which) + ` sh -ec 'ip addr add ` + addr + `/24 dev eth0; ip link set eth0 up; ip route add default via 10.9.0.1'`
	}
	script += fmt.Sprintf(`
		nft -f - <<-END
			table ip hand {
				chain in { type nat hook prerouting priority dstnat; fib daddr type local tcp dport %d dnat to %s:%d; fib daddr type local tcp dport %d dnat to %s:%d; fib daddr type local tcp dport %d dnat to %s:%d; }
				chain out { type nat hook postrouting priority srcnat; ip saddr 10.9.0.0/24 oifname != "br0" masquerade; }
			}
		END`, echoHostPort, podA, echoPort, iperfHostPort, podA, iperfPort, pinnedHostPort, podA, pinnedPort)
	_, err := h.sh("", script+"\n"+h.setup)
	return err
}

// byPlugins creates the same topology with plugins: a with its two host ports, b with others.
func byPlugins(h host) error {
	dir := os.Getenv(insideVariable)
	state := filepath.Join("/run/state", h.ns(""))
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	link, routes := `"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "hairpinMode": true, `+h.keys, ""
	if h.routed {
		link, routes = `"type": "ptp", `, `, "routes": [{"dst": "0.0.0.0/0"}]`
	}
	list := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "net", "plugins": [
		{%s"ipMasq": true, "ipMasqBackend": %q,
		 "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.9.0.0/24"%s}},
		{"type": "portmap", "backend": %q, "capabilities": {"portMappings": true}}]}`, link, h.backend, state, routes, h.backend)
	if err := os.WriteFile(filepath.Join(state, "net.conflist"), []byte(list), 0o600); err != nil {
		return err
	}
	whose := strings.Fields(h.name)[0]
	pinned := fmt.Sprintf(`, {"hostPort": %d, "containerPort": %d, "protocol": "tcp"}`, pinnedHostPort, pinnedPort)
	for i, which := range []string{"a", "b"} {
		add := h.in("", filepath.Join(dir, "cnitool"), "add", "net", "/run/netns/"+h.ns(which))
		add.Env = append(os.Environ(), "CNI_PATH="+filepath.Join(dir, whose), "NETCONFPATH="+state, "FAIRLEAD_RUN="+state,
			fmt.Sprintf(`CAP_ARGS={"portMappings": [{"hostPort": %d, "containerPort": %d, "protocol": "tcp"}, {"hostPort": %d, "containerPort": %d, "protocol": "tcp"}%s]}`,
				echoHostPort+i, echoPort, iperfHostPort+i, iperfPort, []string{pinned, ""}[i]))
		if _, err := output(add); err != nil {
			return err
		}
	}
	return nil
}

// build builds the programs: <dir>/cnitool, and the plugins in <dir>/ours and <dir>/reference.
func build(dir string) error {
	for _, pkg := range []string{"./cmd/fairlead-cni", "./cmd/fairlead"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	if err := os.Symlink("fairlead", filepath.Join(dir, "cnitool")); err != nil {
		return err
	}
	for _, who := range []string{"Fairlead", "reference"} {
		if err := os.MkdirAll(filepath.Join(dir, who), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bridge", "host-local", "portmap"} {
		path, err := reference.InstallPlugin(name)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(dir, "reference", name)); err != nil {
			return err
		}
		if err := os.Symlink("../fairlead-cni", filepath.Join(dir, "Fairlead", name)); err != nil {
			return err
		}
	}
	return os.Symlink("../fairlead-cni", filepath.Join(dir, "Fairlead", "ptp"))
}
