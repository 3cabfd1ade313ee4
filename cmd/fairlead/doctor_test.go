package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/doctor/gather"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/libcni"
)

// newDoctorSite returns a site with an uplink and an /etc of its own.
func newDoctorSite(t testing.TB) *site {
	t.Helper()
	s := newSite(t, "web", "db")
	s.uplink()
	s.sh("mkdir -p /run/etc/upper /run/etc/work")
	must(t, syscall.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work"))
	write(t, "/etc/netns/web", "resolv.conf", "nameserver 10.1.0.1\n")
	write(t, "/etc", "resolv.conf", "nameserver 198.51.100.1\n")
	return s
}

// uplink gives the host an uplink, without IPv6: the kernel would add its routes at some time while the test runs.
func (s *site) uplink() {
	s.sh(`ip link add name up0 type veth peer name up1
		sysctl -qw net.ipv6.conf.up0.disable_ipv6=1 net.ipv6.conf.up1.disable_ipv6=1
		ip addr add 198.51.100.2/24 dev up0
		ip link set up0 up
		ip link set up1 up
		ip route add default via 198.51.100.1`)
}

func (s *site) hostNow() string { return normal(kerneltest.Dump(s, "")) }

func (s *site) doctor(argv ...string) (code int, d diagnosis) {
	s.Helper()
	code, out, errs := s.fairlead(append([]string{"doctor", "--json"}, argv...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		s.Fatalf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
	return code, d
}

// applyFix runs the command that a finding names.
func (s *site) fix(command string) {
	s.Helper()
	for c := range strings.SplitSeq(command, " && ") {
		if argv := words(c); argv[0] == "fairlead" {
			s.ok(argv[1:]...)
			continue
		}
		s.sh(c)
	}
}

// tunnelLink creates a link as the agent's with the backend vxlan.
const tunnelLink = "ip link add fl-vx.1 type vxlan id 1 local 198.51.100.2 dev up0 dstport 8472 nolearning\n" +
	"sh -c 'ip link set fl-vx.1 up alias \"fairlead-agent vxlan default\"'\n"

// faults are scripts that break a host, by the finding that doctor must report. VETH and IFB are as in breaks; ID is
// the container web.
func faults() []struct{ name, script string } {
	return []struct{ name, script string }{
		{"interface-down", "web ip link set eth0 down"},
		{"host-end-down", "ip link set VETH down"},
		{"bridge-down", "ip link set cni0 down"},
		{"bridge-lost", "ip link del cni0"},
		{"bridge-gateway-missing", "ip addr del 10.1.0.1/24 dev cni0"},
		{"port-off-bridge", "ip link set VETH nomaster"},
		{"port-on-other-bridge", "ip link add br9 type bridge\nip link set VETH master br9"},
		{"port-changed", "bridge link set dev VETH hairpin off"},
		{"port-blocked", "bridge link set dev VETH state 0"},
		{"port-isolated", "bridge link set dev VETH isolated on"},
		{"address-missing", "web ip addr del 10.1.0.2/24 dev eth0"},
		{"address-wrong-prefix", "web ip addr del 10.1.0.2/24 dev eth0\nweb ip addr add 10.1.0.2/16 dev eth0"},
		{"address-duplicate", "db ip addr add 10.1.0.2/24 dev eth0"},
		{"address-duplicate", "ip addr add 10.1.0.2/32 dev lo"},
		{"default-route-missing", "web ip route del default"},
		{"default-route-replaced", "web ip route replace default via 10.1.0.9"},
		{"subnet-route-missing", "web ip route flush table main"},
		{"gateway-neighbour-wrong", "web ip neigh replace 10.1.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"},
		{"neighbour-wrong", "ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:99 dev cni0 nud permanent"},
		{"mac-changed", "web ip link set eth0 address 02:00:00:00:00:77"},
		{"mtu-too-large", "ip link set VETH mtu 1280"},
		{"mtu-too-large", "ip link set up0 mtu 1300"},
		{"settings-changed", "web ip link set eth0 mtu 1450"},
		{"forwarding-off", "sysctl -qw net.ipv4.ip_forward=0"},
		{"forwarding-off", "sysctl -qw net.ipv6.conf.all.forwarding=0"},
		{"forwarding-off-on-link", "sysctl -qw net.ipv4.conf.cni0.forwarding=0"},
		{"sysctl-changed", "web sysctl -qw net.core.somaxconn=7"},
		{"sysctl-changed", "sysctl -qw net.ipv4.conf.cni0.route_localnet=0"},
		{"rules-missing", "nft flush ruleset"},
		{"rules-missing", "nft flush chain inet fairlead prerouting"},
		{"table-dormant", "nft add table inet fairlead { flags dormant; }"},
		{"masquerade-missing", "nft delete element inet fairlead masq-n-10.1.0.0/24 { 10.1.0.2 }"},
		{"host-port-missing", "nft delete element inet fairlead hostports-any4 { tcp . 8080 }"},
		{"host-port-taken", "nft add table ip other\nnft add chain ip other pre { type nat hook prerouting priority dstnat; }\nnft add rule ip other pre tcp dport 8080 dnat to 10.9.9.9"},
		{"forward-dropped", "nft add table inet other\nnft add chain inet other across { type filter hook forward priority 0; policy drop; }"},
		{"forward-dropped", "nft add table ip other\nnft add chain ip other across { type filter hook forward priority 0; }\nnft add chain ip other inner\n" +
			"nft add rule ip other across jump inner\nnft add rule ip other inner ip saddr 10.1.0.0/24 counter drop"},
		{"forward-dropped", "nft add table ip other\nnft add chain ip other across { type filter hook forward priority 0; }\nnft add rule ip other across ip daddr { 10.1.0.0-10.1.0.9, 10.3.0.0/16 } reject"},
		{"forward-dropped", "iptables -P FORWARD DROP\niptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"},
		{"forward-dropped", "ip6tables -A FORWARD -i cni0 -j REJECT"},
		{"tunnel-dropped", tunnelLink + "nft add table inet other\nnft add chain inet other arrive { type filter hook input priority 0; policy drop; }\n" +
			"nft add rule inet other arrive iif lo accept\nnft add rule inet other arrive ct state established,related accept\n" +
			"nft add rule inet other arrive ip daddr 10.1.0.1 accept\nnft add rule inet other arrive tcp dport 22 accept"},
		{"tunnel-dropped", tunnelLink + "iptables -P INPUT DROP\niptables -A INPUT -i lo -j ACCEPT\niptables -A INPUT -i cni0 -j ACCEPT\n" +
			"iptables -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\niptables -A INPUT -p tcp --dport 22 -j ACCEPT"},
		{"tunnel-dropped", tunnelLink + "iptables -A INPUT -i up0 -p udp -j DROP"},
		{"input-dropped", "iptables -A INPUT -i cni0 -j DROP"},
		{"host-port-taken", "iptables -t nat -A PREROUTING -p udp --dport 5300 -j REDIRECT --to-ports 54"},
		{"host-port-taken", "iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -p tcp -m tcp --dport 8000:8100 -j DNAT --to-destination 10.9.9.9"},
		{"host-port-dropped", "iptables -A FORWARD -i up0 -m conntrack --ctstate DNAT -j DROP"},
		{"host-port-dropped", "nft add table ip other\nnft add chain ip other across { type filter hook forward priority 0; }\nnft add rule ip other across iifname up0 tcp dport 80 drop"},
		{"input-dropped", "nft add table inet other\nnft add chain inet other enter { type filter hook input priority 0; }\nnft add rule inet other enter iifname cni0 drop"},
		{"udp-flow-stale", "conntrack -I -p udp -s 198.51.100.9 -d 198.51.100.2 --sport 4000 --dport 5300 -r 10.1.0.99 -q 198.51.100.9 --reply-port-src 53 --reply-port-dst 4000 -t 100"},
		{"shaping-missing", "tc qdisc del dev VETH root"},
		{"shaping-missing", "ip link del IFB"},
		{"host-route-wrong", "ip route add 10.1.0.2/32 dev up0"},
		{"host-route-refused", "ip rule add from 10.1.0.2 prohibit priority 50"},
		{"host-no-default-route", "ip route del default"},
		{"dns-loopback", "sh -c 'echo nameserver 127.0.0.53 > /etc/netns/web/resolv.conf'"},
		{"dns-unreachable", "sh -c 'echo nameserver fd99::1 > /etc/netns/web/resolv.conf'\nweb ip -6 route del default"},
		{"address-not-held", "rm /var/lib/cni/networks/n/10.1.0.2"},
		{"address-held-by-another", "sh -c 'echo someone > /var/lib/cni/networks/n/10.1.0.2'"},
		{"interface-missing", "web ip link del eth0"},
		{"interface-changed", "ip link set VETH alias stranger"},
		{"record-of-another-boot", `sh -c 'echo {\"boot\":\"0\"} > /run/fairlead/attach/n/old,eth0.json'`},
		{"plugin-missing", `sh -c 'echo {\"cniVersion\":\"1.0.0\",\"name\":\"m\",\"type\":\"nowhere-to-be-found\"} > CONF/m.conf'`},
		{"agent-away", `sh -c 'echo {\"cniVersion\":\"1.0.0\",\"name\":\"m\",\"type\":\"bridge\",\"ipam\":{\"type\":\"fairlead-ipam\"}} > CONF/m.conf'`},
		{"range-nearly-full", `sh -c 'i=2; while [ $i -lt 9 ]; do echo x$i > /var/lib/cni/networks/small/10.8.0.$i; i=$((i+1)); done'`},
	}
}

// untold reports whether a test cannot run the remedy of a finding as a command.
func untold(name string) bool {
	switch name {
	case "interface-missing", "plugin-missing", "host-no-default-route", "range-nearly-full", "agent-away":
		return true
	}
	return false
}

// TestDoctorFusedList checks that doctor looks at the plugins inside a fused list, too.
func TestDoctorFusedList(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	write(t, s.confDir(), "m.conflist", `{"cniVersion": "1.1.0", "name": "m", "plugins": [{"type": "fairlead-chain", "plugins": [
		{"type": "ptp", "ipam": {"type": "fairlead-ipam"}}, {"type": "nowhere-to-be-found"}]}]}`)
	write(t, s.confDir(), "small.conflist", `{"cniVersion": "1.1.0", "name": "small", "plugins": [{"type": "fairlead-chain", "plugins": [
		{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.8.0.0/29"}}]}]}`)
	s.sh("mkdir -p /var/lib/cni/networks/small")
	for _, ip := range []string{"10.8.0.2", "10.8.0.3", "10.8.0.4", "10.8.0.5", "10.8.0.6"} {
		write(t, "/var/lib/cni/networks/small", ip, "x"+ip)
	}
	_, d := s.doctor()
	for _, want := range []string{"agent-away", "plugin-missing", "range-nearly-full"} {
		if !slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool { return f.Name == want }) {
			t.Errorf("no finding %s in %+v", want, d.Findings)
		}
	}
}

// TestDoctorInvalidConfiguration checks that doctor reports a file that it cannot read as not examined.
func TestDoctorInvalidConfiguration(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	file := write(t, s.confDir(), "m.conflist", `{"cniVersion": "1.1.0", "name": "m",`)
	_, d := s.doctor()
	if len(d.Unseen) != 1 || !strings.Contains(d.Unseen[0], file+":1:36: the text ends too early") {
		t.Errorf("got %q", d.Unseen)
	}
	if out := s.ok("doctor"); out != "Found nothing wrong, but not everything of 2 attachments and the host could be examined.\n" {
		t.Errorf("doctor prints %q", out)
	}
}

// TestDoctorTunnelAccepted checks that a firewall that accepts the tunnel's packets from some hosts is no finding.
func TestDoctorTunnelAccepted(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	s.sh(tunnelLink + "nft add table inet other\nnft add chain inet other arrive { type filter hook input priority 0; policy drop; }\n" +
		"nft add rule inet other arrive ip saddr 198.51.100.0/24 udp dport 8472 accept\nnft add rule inet other arrive iifname cni0 accept")
	if code, d := s.doctor(); code != 0 || len(d.Findings) > 0 {
		t.Errorf("exit code %d, %+v", code, d)
	}
}

// TestDoctorDuringDEL checks that attachments which are removed while doctor works are no findings.
func TestDoctorDuringDEL(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	facts, unseen, err := gather.Facts(t.Context(), gather.Options{
		Runtime: libcni.NewCNIConfig(nil, nil), RunDir: attach.DefaultRoot, LibDir: libcni.CacheDir, ConfDir: s.confDir(), PluginDirs: []string{s.confDir()},
		Include: func(*attach.Record) bool { return true },
		Progress: func(done, _ int) func() {
			if done == 0 {
				s.ok("del", "n", "web")
				s.ok("del", "n", "db")
				s.sh("ip netns del web\nip netns del db")
			}
			return func() {}
		},
	})
	if err != nil || len(facts.Attachments) > 0 || len(unseen) > 0 {
		t.Errorf("%v, %d attachments, %q", err, len(facts.Attachments), unseen)
	}
}

// TestDoctor breaks a host in each way. Doctor must report it, and the command in the finding must fix it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := newDoctorSite(t)
			write(t, s.confDir(), "small.conflist", `{"cniVersion": "1.0.0", "name": "small", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.8.0.0/28", "rangeEnd": "10.8.0.8"}}]}`)
			must(t, os.MkdirAll("/var/lib/cni/networks/small", 0o755))
			if code, d := s.doctor(); code != 0 || len(d.Findings) > 0 || len(d.Unseen) > 0 || d.Attachments != 2 {
				t.Fatalf("of a healthy host: exit code %d, %+v", code, d)
			}
			s.sh(strings.ReplaceAll(s.names(fault.script), "CONF", s.confDir()))
			s.settled(s.hostNow)
			code, d := s.doctor()
			var found *doctor.Finding
			for _, f := range d.Findings {
				if f.Name == fault.name && found == nil {
					found = &f
				}
				if f.Problem == "" || f.Effect == "" || f.Fix == "" {
					t.Errorf("says too little: %+v", f)
				}
			}
			if code != exitWrong || found == nil {
				t.Fatalf("exit code %d, and no %s: %+v", code, fault.name, d)
			}
			if untold(fault.name) {
				return
			}
			for range 4 { // one problem may hide another
				done := map[string]bool{} // containers share bridges and rules of other software
				for _, f := range d.Findings {
					if !done[f.Fix] {
						s.fix(f.Fix)
					}
					done[f.Fix] = true
				}
				s.settled(s.hostNow)
				if code, d = s.doctor(); code == 0 {
					break
				}
			}
			if code != 0 || len(d.Findings) > 0 {
				t.Errorf("after %s: exit code %d, %+v", found.Fix, code, d)
			}
		})
	}
}

// thirdPartyRules creates objects of other software on a working host: rules like Docker's and firewalld's that accept
// the containers' traffic.
const thirdPartyRules = `nft add table ip filter
	nft add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }
	nft add chain ip filter DOCKER-USER
	nft add chain ip filter DOCKER-FORWARD
	nft add rule ip filter FORWARD counter jump DOCKER-USER
	nft add rule ip filter FORWARD counter jump DOCKER-FORWARD
	nft add rule ip filter DOCKER-FORWARD iifname docker0 oifname != docker0 accept
	nft add rule ip filter DOCKER-USER ip saddr 10.1.0.0/24 accept
	nft add rule ip filter DOCKER-USER ip daddr 10.1.0.0/24 ct state related,established accept
	nft add rule ip filter DOCKER-USER ip daddr 10.1.0.0/24 ct status dnat accept
	nft add table ip nat
	nft add chain ip nat PREROUTING { type nat hook prerouting priority dstnat; }
	nft add chain ip nat DOCKER
	nft add rule ip nat PREROUTING fib daddr type local counter jump DOCKER
	nft add rule ip nat DOCKER iifname != docker0 tcp dport 9999 counter dnat to 172.17.0.2:80
	nft add table inet firewalld
	nft add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; }
	nft add chain inet firewalld filter_FWD_ZONES
	nft add chain inet firewalld filter_FWD_trusted
	nft add rule inet firewalld filter_FORWARD ct state { established, related } accept
	nft add rule inet firewalld filter_FORWARD ct status dnat accept
	nft add rule inet firewalld filter_FORWARD iifname lo accept
	nft add rule inet firewalld filter_FORWARD ct state invalid drop
	nft add rule inet firewalld filter_FORWARD jump filter_FWD_ZONES
	nft add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited
	nft add rule inet firewalld filter_FWD_ZONES ip saddr { 10.0.0.0/8, 172.16.0.0/12 } goto filter_FWD_trusted
	nft add rule inet firewalld filter_FWD_ZONES ip6 saddr fd00::/8 goto filter_FWD_trusted
	nft add rule inet firewalld filter_FWD_trusted accept
	nft add chain inet firewalld filter_INPUT { type filter hook input priority 10; policy drop; }
	nft add rule inet firewalld filter_INPUT ct state vmap { established : accept, related : accept, invalid : drop }
	nft add rule inet firewalld filter_INPUT tcp dport 22 accept
	nft add rule inet firewalld filter_INPUT meta l4proto { icmp, ipv6-icmp } accept`

// TestDoctorFalseAlarm verifies that doctor reports nothing if other software accepts the containers' traffic.
func TestDoctorFalseAlarm(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	s.sh(thirdPartyRules)
	if code, d := s.doctor(); code != 0 {
		t.Errorf("exit code %d, %+v", code, d)
	}
	if code, d := s.doctor("web", "--probe"); code != 0 || d.Attachments != 1 {
		t.Errorf("of one, with a probe: exit code %d, %+v", code, d)
	}
	if out := s.ok("doctor"); out != "Nothing is wrong: examined 2 attachments and the host.\n" {
		t.Errorf("%s", out)
	}
	for _, argv := range [][]string{{"doctor", ""}, {"repair", "--container", ""}, {"list", "--container", ""}} {
		if out := s.ok(append([]string{"__complete"}, argv...)...); !strings.Contains(out, "web\n") || !strings.Contains(out, "db\n") {
			t.Errorf("completion of %q: %s", argv, out)
		}
	}
	if code, _, errs := s.fairlead("doctor", "nobody"); code != exitFailed || !strings.Contains(errs, "there is no attachment of a container nobody") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	s.sh("nft delete rule inet firewalld filter_FWD_ZONES handle " + s.handle("filter_FWD_ZONES", "ip saddr"))
	if code, d := s.doctor(); code != exitWrong || !strings.Contains(d.Findings[0].Problem, "of chain inet firewalld filter_FORWARD") {
		t.Errorf("once firewalld does not know the network: exit code %d, %+v", code, d)
	}
}

func (s *site) handle(chain, words string) string {
	for l := range strings.Lines(kerneltest.Run(s, "nft", "-a", "list", "chain", "inet", "firewalld", chain)) {
		if before, handle, ok := strings.Cut(strings.TrimSpace(l), " # handle "); ok && strings.Contains(before, words) {
			return handle
		}
	}
	s.Fatalf("no rule %q in %s", words, chain)
	return ""
}

// TestDoctorNames verifies that docs/troubleshooting.md has every finding, and no other.
func TestDoctorNames(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/troubleshooting.md")
	must(t, err)
	section := string(raw)
	for _, name := range doctor.Names() {
		if !strings.Contains(section, "\n| `"+name+"` |") {
			t.Errorf("docs/troubleshooting.md does not know %s", name)
		}
	}
	for l := range strings.Lines(section) {
		name, _, found := strings.Cut(strings.TrimPrefix(l, "| `"), "` |")
		if found && strings.HasPrefix(l, "| `") && !slices.Contains(doctor.Names(), name) {
			t.Errorf("docs/troubleshooting.md has %s, which doctor does not find", name)
		}
	}
	for _, fault := range faults() {
		if !slices.Contains(doctor.Names(), fault.name) {
			t.Errorf("no check lists the finding %s", fault.name)
		}
	}
}

// TestDoctorIPTables verifies that doctor reports nothing if iptables accepts the containers' traffic.
func TestDoctorIPTables(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	s.sh(`iptables -P FORWARD DROP
		iptables -N DOCKER-USER
		iptables -A FORWARD -j DOCKER-USER
		iptables -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
		iptables -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT
		iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
		iptables -A FORWARD -i docker0 -o docker0 -j DROP
		iptables -A FORWARD -s 10.1.0.0/24 -m comment --comment mine -j ACCEPT
		iptables -A FORWARD -m limit --limit 3/min -j LOG
		iptables -A FORWARD -j REJECT
		iptables -t nat -N DOCKER
		iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
		iptables -t nat -A DOCKER ! -i docker0 -p tcp --dport 9999 -j DNAT --to-destination 172.17.0.2:80`)
	if code, d := s.doctor(); code != 0 {
		t.Errorf("exit code %d, %+v", code, d)
	}
}

// TestDoctorProbe verifies that doctor --probe reports a gateway that does not answer.
func TestDoctorProbe(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	s.sh("sysctl -qw net.ipv4.icmp_echo_ignore_all=1")
	if code, d := s.doctor("web"); code != 0 {
		t.Errorf("without a probe: %d, %+v", code, d)
	}
	if code, d := s.doctor("web", "--probe"); code != exitWrong || len(d.Findings) != 1 || d.Findings[0].Name != "gateway-silent" {
		t.Errorf("with a probe: %d, %+v", code, d)
	}
}

// TestDoctorText compares the text that doctor prints.
func TestDoctorText(t *testing.T) {
	t.Parallel()
	s := newDoctorSite(t)
	s.sh("ip netns add gone")
	s.ok("add", "n", "gone")
	s.end("gone")
	code, out, _ := s.fairlead("doctor")
	want := `n gone eth0:
  namespace-gone: its namespace /run/netns/gone is gone, or another namespace has its path
    effect: its addresses and host ports are unused and cannot be used again
    fix:    fairlead gc --all
`
	if code != exitWrong || out != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, out, want)
	}
	s.fix("fairlead gc --all")
	s.ok("doctor")
}
