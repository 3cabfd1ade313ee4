package main

import (
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRepairRouted repairs a routed veth pair with its rules and tables, and with exceptions in another firewall.
func TestRepairRouted(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"rule deleted":           "web ip rule del from 10.2.0.2",
		"route of a table":       "web ip route flush table 100",
		"host's route":           "ip route del 10.2.0.2",
		"exceptions flushed":     "nft flush chain inet other across",
		"recreated chain":        "nft delete table inet other\nnft add table inet other\nnft add chain inet other across { type filter hook forward priority 0; policy drop; }",
		"host end down":          "ip link set VETH down",
		"gateway address":        "ip addr flush dev VETH scope global",
		"main table has it back": "web ip route add default via 10.2.0.1 dev eth0 onlink",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			write(t, s.confDir(), "n.conflist", `{"cniVersion": "1.1.0", "name": "n", "plugins": [
				{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.2.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
				{"type": "firewall"}, {"type": "sbr"}]}`)
			s.uplink()
			s.sh("nft add table inet other\nnft add chain inet other across { type filter hook forward priority 0; policy drop; }\nip netns add web")
			s.ok("add", "n", "web")
			healthy := s.settled(s.routedNow)
			if out := s.ok("repair"); out != "n web eth0: nothing to do\n" {
				t.Fatalf("of a healthy host: %s", out)
			}
			s.sh(s.names(script))
			out := s.ok("repair")
			if now := s.settled(s.routedNow); now != healthy {
				t.Errorf("the state differs from before:\n%s\noutput of repair:\n%s", kerneltest.Diff(healthy, now), out)
			}
			if again := s.ok("repair"); again != "n web eth0: nothing to do\n" {
				t.Errorf("the second repair:\n%sthe first:\n%s", again, out)
			}
			if code, d := s.doctor("web"); code != 0 {
				t.Errorf("doctor: %+v", d)
			}
		})
	}
}

func (s *site) routedNow() string {
	return normal(kerneltest.Dump(s, "") + kerneltest.Dump(s, netnspath.Dir+"/web"))
}

// TestRepairOthers repairs attachments of plugins that create no link on the host.
func TestRepairOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.uplink()
	s.sh("ip netns add web\nip link add name dev0 type veth peer name dev1\nip link set dev1 up")
	const ipam = `"ipam": {"type": "host-local", "subnet": "10.4.0.0/24"}`
	for typ, keys := range map[string]string{
		"macvlan": `"master": "up0", ` + ipam, "tap": ipam, "loopback": "", "host-device": `"device": "dev0"`, "bridge": `"bridge": "br7", "isGateway": true, ` + ipam,
	} {
		if typ == "macvlan" && !kerneltest.Has(t, "macvlan") {
			continue
		}
		if keys != "" {
			keys = ", " + keys
		}
		write(t, s.confDir(), typ+".conflist", strings.ReplaceAll(`{"cniVersion": "1.0.0", "name": "`+typ+`", "plugins": [{"type": "`+typ+`"`+keys+`}]}`, "10.4.", "10.4"+string(typ[0]%10+'0')+"."))
		s.ok("add", typ, "web", "-i", "if-"+typ)
	}
	if code, d := s.doctor(); code != 0 || len(d.Unseen) > 0 {
		t.Errorf("doctor: %+v", d)
	}
	if out := s.ok("repair"); strings.Contains(out, "restored") {
		t.Errorf("repair: %s", out)
	}
	s.sh("web ip link set lo down\nweb ip link set if-host-device down\nweb ip addr flush dev if-tap\nip link del br7")
	code, d := s.doctor()
	if code != exitWrong || len(d.Findings) < 4 {
		t.Errorf("doctor: %+v", d)
	}
	if out := s.ok("repair"); strings.Contains(out, "cannot") {
		t.Errorf("repair: %s", out)
	}
	if code, d := s.doctor(); code != 0 {
		t.Errorf("doctor: %+v", d)
	}
}

// TestRepairRaces verifies that continuous repairs neither restore what a DEL removes nor disturb an ADD.
func TestRepairRaces(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web", "db")
	s.ok("del", "n", "web")
	s.ok("del", "n", "db")
	before := s.left()
	s.sh("ip netns add one\nip netns add two")
	// This thread, which is on the test's host, starts the processes.
	var running []*exec.Cmd
	start := func(argv ...string) *exec.Cmd {
		cmd := exec.Command("fairlead", argv...)
		cmd.Env = s.env
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start())
		return cmd
	}
	for range 15 {
		for _, step := range []string{"add", "del"} {
			for _, c := range []string{"one", "two"} {
				running = append(running, start(step, "n", c))
			}
			repairs := []*exec.Cmd{start("repair"), start("gc", "--all"), start("repair", "--container", "one")}
			for _, cmd := range running {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %v\n%s", cmd.Args, err, cmd.Stdout)
				}
			}
			var all sync.WaitGroup
			for _, cmd := range repairs {
				all.Go(func() { _ = cmd.Wait() }) // an error is expected if a DEL removed the attachment
			}
			all.Wait()
			running = nil
			if step == "add" {
				s.ok("check", "n", "one")
				s.ok("check", "n", "two")
			}
		}
		if d := kerneltest.Diff(before, s.left()); d != "" {
			t.Fatalf("left:\n%s", d)
		}
	}
}
