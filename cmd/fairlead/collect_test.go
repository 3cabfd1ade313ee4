package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// left returns everything that an attachment may leave on the host.
func (s *site) left() string { return s.settled(s.leftNow) }

func (s *site) leftNow() string {
	text := normal(kerneltest.Dump(s, ""))
	files := kerneltest.Run(s, "find", "/run/fairlead", "/var/lib/cni", "-type", "f", "-not", "-name", "last_reserved*", "-not", "-name", "lock", "-not", "-name", "index")
	return text + "\n" + files
}

// end deletes a namespace, and waits until its links are gone.
func (s *site) end(name string) {
	end := s.hostEnd(name)
	s.sh("ip netns del " + name)
	for range 100 {
		if exec.Command("ip", "link", "show", end).Run() != nil {
			return
		}
		time.Sleep(kerneltest.Slow(20 * time.Millisecond))
	}
	s.Fatalf("%s outlives its namespace", end)
}

func (s *site) confDir() string {
	for _, v := range s.env {
		if dir, ok := strings.CutPrefix(v, "NETCONFPATH="); ok {
			return dir
		}
	}
	return ""
}

// TestCollect verifies that gc --all removes everything of an attachment, whichever trace of it is left, and nothing of
// attachments that exist.
func TestCollect(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"nothing lost":             "",
		"configuration lost":       "rm CONF/n.conflist",
		"cache lost":               "rm -r /var/lib/cni/results",
		"only the record":          "rm -r CONF/n.conflist /var/lib/cni/results",
		"only the cache and marks": "rm CONF/n.conflist RECORD",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "web", "db")
			before := s.left()
			kerneltest.Run(t, "ip", "netns", "add", "gone")
			s.withCaps(`{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"tcp"},{"hostIP":"127.0.0.1","hostPort":53,"containerPort":53,"protocol":"udp"}]}`).ok("add", "n", "gone")
			s.end("gone")
			full := s.left()
			s.sh(strings.NewReplacer("CONF", s.confDir(), "RECORD", "/run/fairlead/attach/n/"+containerID(netnspath.Dir+"/gone")+",eth0.json").Replace(lose))
			lost := s.left()
			var report gc.Report
			must(t, json.Unmarshal([]byte(s.ok("gc", "--all", "--dry-run", "--json")), &report))
			if len(report.Attachments) != 1 || report.Attachments[0].Netns != netnspath.Dir+"/gone" || report.Attachments[0].Reason != attach.StateGone || !report.DryRun || s.left() != lost {
				t.Errorf("dry run: %+v\n%s", report, kerneltest.Diff(lost, s.left()))
			}
			var done gc.Report
			must(t, json.Unmarshal([]byte(s.ok("gc", "--all", "--json")), &done))
			if len(done.Attachments) != 1 || len(done.Errors) > 0 || len(done.Skipped) > 0 {
				t.Errorf("%+v", done)
			}
			if d := kerneltest.Diff(clean(before, lose), clean(s.left(), lose)); d != "" {
				t.Errorf("left or taken:\n%s\nthe attachment was:\n%s", d, kerneltest.Diff(before, full))
			}
			if out := s.ok("gc", "--all"); out != "Nothing is left behind. Attachments that exist: 2.\n" {
				t.Errorf("again:\n%s", out)
			}
		})
	}
}

// TestCollectSwitchedBack lets the reference plugins delete attachments that Fairlead created. Gc --all removes what
// they leave.
func TestCollectSwitchedBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	before := s.left()
	kerneltest.Run(t, "ip", "netns", "add", "gone")
	s.withCaps(`{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"tcp"}]}`).ok("add", "n", "gone")
	s.end("gone")
	bin := t.TempDir()
	for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning"} {
		must(t, os.Symlink(reference.Plugin(t, name), filepath.Join(bin, name)))
	}
	back := &site{t, append(slices.Clone(s.env), "CNI_PATH="+bin), s.ends}
	var done gc.Report
	must(t, json.Unmarshal([]byte(back.ok("gc", "--all", "--json")), &done))
	if len(done.Attachments) != 1 || len(done.Errors) > 0 {
		t.Errorf("%+v", done)
	}
	if d := kerneltest.Diff(before, s.left()); d != "" {
		t.Errorf("left or taken:\n%s", d)
	}
	if out := back.ok("gc", "--all"); out != "Nothing is left behind. Attachments that exist: 1.\n" {
		t.Errorf("again:\n%s", out)
	}
}

// TestCollectDropIns checks that gc --all also runs the plugins that came from other files, for attachments whose cache the
// reference library wrote. Its cache has only the list.
func TestCollectDropIns(t *testing.T) {
	t.Parallel()
	host(t)
	conf, bin := t.TempDir(), t.TempDir()
	write(t, conf, "n.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,
		"ipam":{"type":"host-local","subnet":"10.88.0.0/24"}}]}`)
	must(t, os.Mkdir(filepath.Join(conf, "n"), 0o755))
	write(t, filepath.Join(conf, "n"), "10-portmap.conf", `{"type":"portmap","cniVersion":"1.1.0","capabilities":{"portMappings":true}}`)
	for _, name := range []string{"bridge", "host-local", "portmap"} {
		must(t, os.Symlink(reference.Plugin(t, name), filepath.Join(bin, name)))
	}
	s := &site{t, append(os.Environ(), "NETCONFPATH="+conf, "CNI_PATH="+bin), map[string]string{}}
	must(t, os.MkdirAll("/run/fairlead", 0o700)) // which only our plugins make
	s.sh("ip netns add web\nip netns add gone")
	s.reference("add", "web", `{"portMappings":[{"hostPort":9001,"containerPort":80,"protocol":"tcp"}]}`)
	before := s.left()
	s.reference("add", "gone", `{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"tcp"}]}`)
	if full := s.left(); !strings.Contains(full, "9000") {
		t.Fatalf("the reference library did not run portmap:\n%s", kerneltest.Diff(before, full))
	}
	s.sh("ip netns del gone")
	kerneltest.Until(t, func() bool {
		return strings.Count(kerneltest.Run(s, "ip", "-o", "link", "show", "type", "veth"), "\n") == 1
	})
	if out := s.ok("gc", "--all"); !strings.Contains(out, "removed n ") {
		t.Errorf("gc --all:\n%s", out)
	}
	if d := kerneltest.Diff(before, s.left()); d != "" {
		t.Errorf("left or taken:\n%s", d)
	}
}

// clean removes from a dump the files that the test itself removed.
func clean(dump, lost string) (out string) {
	for l := range strings.Lines(dump) {
		if !strings.Contains(lost, "/results") || !strings.Contains(l, "/results/") {
			out += l
		}
	}
	return out
}

// TestCollectWithoutAttachment verifies that gc --all removes objects without any attachment. The subnets are in no other
// test: gc keeps an address that it sees in any namespace of the machine.
func TestCollectWithoutAttachment(t *testing.T) {
	t.Parallel()
	s := newSiteOf(t, strings.NewReplacer("10.1.0.", "10.119.0.", "fd00:1:", "fd00:119:").Replace(siteNetwork), "web", "db")
	before := s.left()
	s.sh("ip netns add gone")
	s.withCaps(`{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"tcp"}]}`).ok("add", "n", "gone")
	s.end("gone")
	id := containerID(netnspath.Dir + "/gone")
	must(t, os.Remove("/run/fairlead/attach/n/"+id+",eth0.json"))
	must(t, os.Remove("/var/lib/cni/results/n-"+id+"-eth0"))
	web := containerID(netnspath.Dir + "/web") // it exists, but only its link and its namespace show that
	must(t, os.Remove("/run/fairlead/attach/n/"+web+",eth0.json"))
	must(t, os.Remove("/var/lib/cni/results/n-"+web+"-eth0"))
	for _, f := range []string{"10.119.0.2", "10.119.0.4", "fd00:119::2"} {
		old := time.Now().Add(-time.Hour)
		must(t, os.Chtimes("/var/lib/cni/networks/n/"+f, old, old))
	}
	write(t, "/var/lib/cni/networks/n", "10.119.0.77", "other eth0") // young: another plugin may be running an ADD
	var done gc.Report
	must(t, json.Unmarshal([]byte(s.ok("gc", "--all", "--json")), &done))
	if len(done.Attachments) != 0 || len(done.Leftovers) != 1 || !strings.Contains(done.Leftovers[0], id) || len(done.Addresses) != 1 || done.Addresses[0].Address != "10.119.0.4" {
		t.Errorf("%+v", done)
	}
	d := kerneltest.Diff(before, s.left())
	for l := range strings.Lines(d) {
		if !strings.Contains(l, web) && !strings.Contains(l, "10.119.0.77") && !strings.Contains(l, "fd00:119::4") && !strings.Contains(l, "hostports/tcp-9000") {
			t.Errorf("%s", l)
		}
	}
	for _, f := range []string{"10.119.0.2", "fd00:119::2", "fd00:119::4", "10.119.0.77"} {
		if _, err := os.Stat("/var/lib/cni/networks/n/" + f); err != nil {
			t.Errorf("%s was freed: it is held, or too young to tell", f)
		}
	}
	s.sh("web ping -c1 -W2 10.119.0.1") // it still works
}

// TestCollectRulesOfMissingBridge verifies that gc --all removes the rules of firewall for a bridge that is gone.
func TestCollectRulesOfMissingBridge(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	e, err := kernel.Open(nil, kernel.Options{})
	must(t, err)
	defer e.Close()
	before := s.left()
	must(t, e.Apply(ruleset.Ingress("gone0", true)))
	full := s.left()
	if out := s.ok("gc", "--all", "--dry-run"); out != "would remove the rules of bridge gone0: there is no such bridge\n" || s.left() != full {
		t.Errorf("dry run:\n%s%s", out, kerneltest.Diff(full, s.left()))
	}
	if out := s.ok("gc", "--all"); out != "removed the rules of bridge gone0: there is no such bridge\n" {
		t.Errorf("gc --all:\n%s", out)
	}
	if d := kerneltest.Diff(before, s.left()); strings.Contains(d, "gone0") {
		t.Errorf("left:\n%s", d)
	}
}

// TestCollectOfTheCluster verifies that gc --all releases addresses of a cluster's network, whichever CNI network held
// them.
func TestCollectOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	const dir = "/var/lib/cni/fairlead/addresses/default"
	old := time.Now().Add(-time.Hour)
	for ip, owner := range map[string]string{"10.244.0.9": "nobody\r\neth0", "10.244.0.10": containerID(netnspath.Dir+"/web") + "\r\neth0", "10.244.0.11": "young\r\neth0"} {
		write(t, dir, ip, owner)
		if ip != "10.244.0.11" {
			must(t, os.Chtimes(dir+"/"+ip, old, old))
		}
	}
	later := time.Now().AddDate(10, 0, 0)
	write(t, dir, "10.244.0.12", "before the clock was set back\r\neth0")
	must(t, os.Chtimes(dir+"/10.244.0.12", later, later))
	var done gc.Report
	must(t, json.Unmarshal([]byte(s.ok("gc", "--all", "--json")), &done))
	if len(done.Addresses) != 2 {
		t.Errorf("%+v", done.Addresses)
	}
	for ip, want := range map[string]bool{"10.244.0.9": false, "10.244.0.10": true, "10.244.0.11": true, "10.244.0.12": false} {
		if _, err := os.Stat(dir + "/" + ip); (err == nil) != want {
			t.Errorf("%s: %v, want held: %v", ip, err, want)
		}
	}
}

// TestCollectAdding verifies that gc --all keeps what is being added.
func TestCollectAdding(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	dir := attach.Open("")
	o := kernel.Owner{Network: "n", ContainerID: "coming", IfName: "eth0"}
	place, err := dir.Reserve(o)
	must(t, err)
	write(t, "/var/lib/cni/networks/n", "10.1.0.50", "coming\r\neth0")
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes("/var/lib/cni/networks/n/10.1.0.50", old, old))
	before := s.left()
	if out := s.ok("gc", "--all"); !strings.HasPrefix(out, "Nothing is left behind") || s.left() != before {
		t.Errorf("an ADD that has no record yet:\n%s%s", out, kerneltest.Diff(before, s.left()))
	}
	r := dir.New("n", "coming", "eth0", netnspath.Dir+"/gone") // this ADD will fail, which does not matter here
	r.Parts = []attach.Part{{Plugin: "bridge"}}
	must(t, dir.Create(r, place))
	before = s.left()
	if out := s.ok("gc", "--all"); !strings.HasPrefix(out, "Nothing is left behind. Attachments that exist: 2.") || s.left() != before {
		t.Errorf("an ADD with a record:\n%s%s", out, kerneltest.Diff(before, s.left()))
	}
	r.Unlock() // killed
	if out := s.ok("gc", "--all"); !strings.HasPrefix(out, "removed n coming eth0: interrupted") {
		t.Errorf("an interrupted ADD:\n%s", out)
	}
	if _, err := os.Stat("/var/lib/cni/networks/n/10.1.0.50"); err == nil {
		t.Error("its address is still held")
	}
}

// TestCollectKilledEarly kills an ADD that has an address but no record.
func TestCollectKilledEarly(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	before := s.left()
	write(t, "/run/fairlead/attach/n", "early,eth0.json~", "")
	write(t, "/var/lib/cni/networks/n", "10.1.0.50", "early\r\neth0")
	if out := s.ok("gc", "--all"); !strings.HasPrefix(out, "removed n early eth0: interrupted") {
		t.Errorf("%s", out)
	}
	if d := kerneltest.Diff(before, s.left()); d != "" {
		t.Errorf("left:\n%s", d)
	}
}

// TestCollectUnknownPlugin verifies that gc --all removes our objects of an attachment with a plugin that is not
// installed any more, and reports an error.
func TestCollectUnknownPlugin(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	write(t, s.confDir(), "m.conflist", `{"cniVersion": "1.1.0", "name": "m", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/elsewhere", "subnet": "10.9.0.0/24"}}]}`)
	s.sh("ip netns add gone")
	s.ok("add", "m", "gone")
	s.end("gone")
	write(t, s.confDir(), "m.conflist", `{"cniVersion": "1.1.0", "name": "m", "plugins": [{"type": "nowhere-to-be-found"}]}`)
	must(t, os.RemoveAll("/var/lib/cni/results"))
	code, out, errs := s.fairlead("gc", "--all")
	if out != "Not everything was removed. Failures: 1. Attachments that exist: 1.\n" {
		t.Errorf("gc --all prints %q", out)
	}
	if code != exitFailed || !strings.Contains(errs, "nowhere-to-be-found") || !strings.Contains(errs, "Fairlead's objects are removed, but DEL failed:") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if out := s.ok("list", "--network", "m"); !strings.HasPrefix(out, "No such attachment") {
		t.Errorf("still listed:\n%s", out)
	}
}

// TestCollectMissingPlugin checks that gc --all tries again, with the result of ADD, when a plugin is there that was missing.
func TestCollectMissingPlugin(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	more, deleted := t.TempDir(), filepath.Join(t.TempDir(), "deleted")
	other := write(t, more, "other", `#!/bin/sh
[ $CNI_COMMAND = DEL ] && exec cat >`+deleted+`
sed 's/.*"prevResult": *//; s/}$//'
`)
	must(t, os.Chmod(other, 0o755))
	write(t, s.confDir(), "m.conflist", `{"cniVersion": "1.1.0", "name": "m", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}}, {"type": "other"}]}`)
	s.sh("ip netns add gone")
	with := &site{t, append(slices.Clone(s.env), "CNI_PATH="+filepath.SplitList(os.Getenv("PATH"))[0]+":"+more), s.ends}
	with.ok("add", "m", "gone")
	s.end("gone")
	for range 2 {
		if code, out, errs := s.fairlead("gc", "--all"); code != exitFailed || !strings.Contains(errs, `failed to find plugin "other"`) {
			t.Errorf("without the plugin: exit code %d\n%s%s", code, out, errs)
		}
	}
	with.ok("gc", "--all")
	if raw, err := os.ReadFile(deleted); err != nil || !strings.Contains(string(raw), "10.9.0.2/24") {
		t.Errorf("the plugin got: %s, %v", raw, err)
	}
	if out := s.ok("gc", "--all"); out != "Nothing is left behind. Attachments that exist: 1.\n" {
		t.Errorf("again:\n%s", out)
	}
}

// TestCollectOVS checks that gc --all removes a port of Open vSwitch with the record alone.
func TestCollectOVS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sw := ovstest.New(t)
	write(t, s.confDir(), "o.conflist", `{"cniVersion": "1.1.0", "name": "o", "plugins": [{"type": "ovs", "bridge": "ovs0", "socket_file": "`+sw.Socket()+`",
		"ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}}]}`)
	s.sh("ip netns add gone")
	s.ok("add", "o", "gone")
	s.sh("ip netns del gone")
	s.sh("rm -r " + s.confDir() + "/o.conflist /var/lib/cni/results")
	ports := func() string { return strings.TrimSpace(sw.Ctl("list-ports", "ovs0")) }
	if ports() == "" {
		t.Fatal("the switch has no port")
	}
	s.ok("gc", "--all")
	if got := ports(); got != "" {
		t.Errorf("ports after gc: %q", got)
	}
	if out := s.ok("gc", "--all"); out != "Nothing is left behind. Attachments that exist: 0.\n" {
		t.Errorf("again:\n%s", out)
	}
}

// TestDelLeavesSuccessor verifies that a DEL changes nothing in another namespace at the same path.
func TestDelLeavesSuccessor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.sh("ip netns add web")
	conf := func(sysctl string) {
		write(t, s.confDir(), "n.conflist", `{"cniVersion": "1.1.0", "name": "n", "plugins": [
			{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}},
			{"type": "tuning", "sysctl": {"net.core.somaxconn": "`+sysctl+`"}}]}`)
	}
	conf("500")
	bare(t, s, "ADD", "old")
	s.sh("ip netns del web\nip netns add web")
	conf("600")
	bare(t, s, "ADD", "new")
	bare(t, s, "DEL", "old")
	if got := kerneltest.In(t, netnspath.Dir+"/web", "cat", "/proc/sys/net/core/somaxconn"); strings.TrimSpace(got) != "600" {
		t.Errorf("the successor's sysctl is %s", got)
	}
	s.sh("web ip link show eth0")
}

// bare runs the plugins of the network n one by one for a container in the namespace web, as a simple runtime does.
func bare(t *testing.T, s *site, command, container string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.confDir(), "n.conflist"))
	must(t, err)
	var list struct{ Plugins []map[string]any }
	must(t, json.Unmarshal(raw, &list))
	var prev any
	for i := range list.Plugins {
		p := list.Plugins[i]
		if command == "DEL" {
			p = list.Plugins[len(list.Plugins)-1-i]
		}
		p["cniVersion"], p["name"] = "1.1.0", "n"
		if prev != nil {
			p["prevResult"] = prev
		}
		in, err := json.Marshal(p)
		must(t, err)
		cmd := exec.Command(p["type"].(string))
		cmd.Env = append(s.env, "CNI_COMMAND="+command, "CNI_CONTAINERID="+container, "CNI_NETNS="+netnspath.Dir+"/web", "CNI_IFNAME=eth0")
		for _, e := range s.env {
			if path, ok := strings.CutPrefix(e, "CNI_PATH="); ok {
				cmd.Path = filepath.Join(path, p["type"].(string))
			}
		}
		cmd.Stdin = strings.NewReader(string(in))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", p["type"], command, err, out)
		}
		if command == "ADD" {
			must(t, json.Unmarshal(out, &prev))
		}
	}
}

// TestRepairWaits verifies that a DEL waits for the end of a repair.
func TestRepairWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web")
	dir := attach.Open("")
	_, release, err := dir.Hold(kernel.Owner{Network: "n", ContainerID: containerID(netnspath.Dir + "/web"), IfName: "eth0"})
	must(t, err)
	if out := s.ok("repair"); !strings.Contains(out, "skipped: an ADD or DEL is running") {
		t.Errorf("a second repair:\n%s", out)
	}
	cmd := exec.Command("fairlead", "del", "n", "web")
	cmd.Env = s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	time.Sleep(kerneltest.Slow(200 * time.Millisecond))
	s.sh("ip link show " + s.hostEnd("web")) // not yet
	release()
	must(t, cmd.Wait())
	if out := s.ok("list"); !strings.HasPrefix(out, "No attachments") {
		t.Errorf("after the DEL:\n%s", out)
	}
}

// TestCollectWithoutPath adds a container by a symbolic link to its namespace, and removes the link. Gc keeps the
// interface, because the namespace exists.
func TestCollectWithoutPath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.sh("ip netns add web\nln -s /run/netns/web /run/link")
	s.ok("add", "n", "/run/link")
	must(t, os.Remove("/run/link"))
	if out := s.ok("list"); !strings.HasSuffix(strings.TrimSpace(out), " ok") {
		t.Error(out)
	}
	if _, d := s.doctor(); len(d.Unseen) > 0 || slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool { return f.Container != "" }) {
		t.Errorf("%+v", d)
	}
	s.sh("web ip addr flush dev eth0")
	if out := s.ok("repair"); !strings.Contains(out, "restored 3 objects") {
		t.Error(out)
	}
	for _, argv := range [][]string{{"gc", "--all"}, {"gc", "n"}} {
		s.ok(argv...)
		s.sh("web ip link show eth0")
	}
	if out := s.ok("gc", "--all"); !strings.Contains(out, "/run/link is gone, but the namespace exists: /run/netns/web") {
		t.Error(out)
	}
	s.sh("ip netns del web")
	s.settled(s.leftNow)
	s.ok("gc", "--all")
	s.noRecords()
}

// TestHandOverWithoutPath gives a container two networks with one host port, and removes the path of its namespace. DEL of
// the network that has the port hands it over to the other.
func TestHandOverWithoutPath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	write(t, s.confDir(), "m.conflist", `{"cniVersion": "1.0.0", "name": "m", "plugins": [
		{"type": "bridge", "bridge": "cni9", "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]}`)
	s.sh("ip netns add web\nln -s /run/netns/web /run/link")
	port := s.withCaps(`{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"tcp"}]}`)
	port.ok("add", "n", "/run/link")
	port.ok("add", "m", "/run/link", "--ifname", "eth1")
	must(t, os.Remove("/run/link"))
	port.ok("del", "n", "/run/link")
	if rules := kerneltest.Run(t, "nft", "list", "ruleset"); !strings.Contains(rules, " : 10.9.0.2 . 80 }") {
		t.Error(rules)
	}
	port.ok("del", "m", "/run/link", "--ifname", "eth1")
}

// TestHostPortWithoutPath takes away what shows that a container exists: the path of its namespace, or the text of its
// record. Its host port stays its own until the container ends.
func TestHostPortWithoutPath(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *site){
		"path": func(s *site) { must(t, os.Remove("/run/link")) },
		"record": func(s *site) {
			s.sh("truncate -s 20 /run/fairlead/attach/n/" + containerID("/run/link") + ",eth0.json")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.sh("ip netns add web\nip netns add db\nln -s /run/netns/web /run/link")
			port := s.withCaps(`{"portMappings":[{"hostPort":9000,"containerPort":80,"protocol":"tcp"}]}`)
			port.ok("add", "n", "/run/link")
			lose(s)
			for range 2 {
				if code, out, errs := port.fairlead("add", "n", "db"); code == 0 || !strings.Contains(out+errs, "host port 9000/tcp") {
					t.Errorf("exit code %d, %s%s", code, out, errs)
					return
				}
				s.ok("gc", "--all") // the container exists
			}
			s.sh("ip netns del web")
			s.settled(s.leftNow)
			s.ok("gc", "--all")
			port.ok("add", "n", "db")
		})
	}
}
