package ipam

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// member is a node: its directories, and its agent while it runs.
type member struct {
	t        *testing.T
	name     string
	lib, run string
	manager  *address.Manager
	stop     func()
}

func newMember(t *testing.T, name string) *member {
	m := &member{t: t, name: name, lib: t.TempDir(), stop: func() {}}
	var err error
	if m.run, err = os.MkdirTemp("", "fl"); err != nil { // a socket's path must be short
		t.Fatal(err)
	}
	t.Cleanup(func() { m.stop(); os.RemoveAll(m.run) })
	return m
}

func (m *member) dir() local.Dir { return local.Open(m.lib, m.run) }

// start starts the agent's address service on a store, with a session as in the agent.
func (m *member) start(open func() (store.Store, error)) {
	m.t.Helper()
	s, err := open()
	if err != nil {
		m.t.Fatal(err)
	}
	storetest.Put(m.t, s, cluster.NodeKey(m.name), "{}")
	l, err := address.Listen(m.dir().Socket())
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	own := session.New(s, session.Identity{Node: m.name, Machine: m.name, Instance: m.name}, slog.New(slog.DiscardHandler))
	if err := own.Start(ctx); err != nil {
		m.t.Fatal(err)
	}
	m.manager = address.NewManager(address.Options{
		Store: own.Store(), Session: own.Revision, Node: m.name, Dir: m.dir(), MTU: func(string) int { return 1450 },
	})
	done := make(chan struct{}, 4)
	for _, f := range []func(){
		func() { own.Run(ctx) },
		func() { _ = source.Follow(ctx, s, cluster.Followed(), m.manager) },
		func() { _ = m.manager.Run(ctx) },
		func() { _ = (&address.Server{Handlers: m.manager.Handlers()}).Serve(ctx, l) },
	} {
		go func() { f(); done <- struct{}{} }()
	}
	m.stop = func() {
		cancel()
		for range 4 {
			<-done
		}
		_ = s.Close()
		m.stop = func() {}
	}
	kerneltest.Eventually(m.t, func() error {
		var now local.StatusResult
		if err := m.dir().Call(ctx, local.OpStatus, local.StatusArgs{}, &now); err != nil || now.Store == "" {
			return err
		}
		return errors.New(now.Store) // before that, the agent asks an ADD to try again later
	})
}

// plugin runs a plugin's operation on this node.
func (m *member) plugin(name string, c call) (int, string) {
	m.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{asPluginEnv + "=" + name, local.LibVariable + "=" + m.lib, local.RunVariable + "=" + m.run}
	for k, v := range c.env() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.conf), &stdout, &stderr
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), stdout.String()
}

func (m *member) must(c call) string {
	m.t.Helper()
	return mustRun(m.t, func(_ testing.TB, c call) (int, string) { return m.plugin("fairlead-ipam", c) }, c)
}

func (m *member) wantError(c call, code uint, words string) {
	m.t.Helper()
	exit, out := m.plugin("fairlead-ipam", c)
	if exit == 0 {
		m.t.Fatalf("%s %s succeeded: %s", c.verb, c.id, out)
	}
	if have, msg := message(m.t, out); have != code || !strings.Contains(msg, words) {
		m.t.Errorf("%s %s: %d, %s\nwant %d, %s", c.verb, c.id, have, msg, code, words)
	}
}

// ipsOf returns the addresses of a result as text.
func ipsOf(t testing.TB, out string) (list []string) {
	t.Helper()
	var r struct {
		IPs []struct{ Address, Gateway string }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, ip := range r.IPs {
		list = append(list, ip.Address+" "+ip.Gateway)
	}
	return list
}

const fairleadNetwork = `{"subnets": [
	{"cidr": "10.244.0.0/26", "block": 28}, {"cidr": "fd00:244::/120", "block": 124},
	{"name": "extra", "cidr": "10.245.0.0/28", "block": 28, "exclude": ["10.245.0.2-10.245.0.10"]},
	{"name": "fixed", "cidr": "10.250.0.0/29", "assign": "cluster"}]}`

func storeFile(t *testing.T) func() (store.Store, error) { return storeOf(t, fairleadNetwork) }

func storeOf(t *testing.T, network string) func() (store.Store, error) {
	path := filepath.Join(t.TempDir(), "store")
	open := func() (store.Store, error) { return store.File(path) }
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Put(t, s, cluster.NetworkKey("default"), network)
	return open
}

func fairleadOf(keys string) string {
	return `{"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "fairlead-ipam"` + keys + `}}`
}

// Addresses from this node's blocks need no agent. Without the agent, everything else fails with code 11.
func TestFairleadWithoutAgent(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	open := storeFile(t)
	m.wantError(call{verb: "ADD", id: "c0", conf: fairleadOf("")}, 11, "this node has not joined network default yet: the agent does not answer at")
	m.wantError(call{verb: "STATUS", conf: fairleadOf("")}, 50, "the agent does not answer")
	m.start(open)
	out := m.must(call{verb: "ADD", id: "c0", conf: fairleadOf("")})
	ips := ipsOf(t, out)
	if len(ips) != 2 || !strings.HasPrefix(ips[0], "10.244.0.") || !strings.Contains(ips[0], "/28 10.244.0.") || !strings.HasPrefix(ips[1], "fd00:244::") {
		t.Errorf("got %v", ips)
	}
	if !strings.Contains(out, `{"dst":"10.244.0.0/26","mtu":1450}`) {
		t.Errorf("the network's route is missing: %s", out)
	}
	m.must(call{verb: "ADD", id: "x0", ifname: "net1", conf: fairleadOf(`, "pool": "extra"`)})
	m.stop()
	seen := map[string]bool{ips[0]: true}
	for i := range 12 { // 16 addresses minus network, broadcast, gateway and the first container
		ip := ipsOf(t, m.must(call{verb: "ADD", id: fmt.Sprint("c", i+1), conf: fairleadOf(`, "addresses": [{"family": 4}]`)}))
		if len(ip) != 1 || seen[ip[0]] {
			t.Fatalf("container %d has %v", i+1, ip)
		}
		seen[ip[0]] = true
	}
	m.wantError(call{verb: "ADD", id: "late", conf: fairleadOf("")}, 11, "all are allocated; requesting another block of 10.244.0.0/26 failed: the agent does not answer at")
	m.wantError(call{verb: "STATUS", conf: fairleadOf("")}, 50, "this node's blocks of 10.244.0.0/26 are full")
	m.wantError(call{verb: "ADD", id: "fix", args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=db-0", conf: fairleadOf(`, "pool": "fixed", "fixed": true`)}, 11, "the agent does not answer")
	m.must(call{verb: "CHECK", id: "c0", conf: fairleadOf("")})
	m.must(call{verb: "DEL", id: "c0", conf: fairleadOf("")})
	m.must(call{verb: "DEL", id: "c0", conf: fairleadOf("")})
	m.wantError(call{verb: "CHECK", id: "c0", conf: fairleadOf("")}, 100, "has no address for container c0 eth0")
	m.must(call{verb: "STATUS", conf: fairleadOf("")})
	if got := ipsOf(t, m.must(call{verb: "ADD", id: "again", conf: fairleadOf(`, "addresses": [{"family": 4}]`)})); got[0] != ips[0] {
		t.Errorf("the only free address is %s, got %v", ips[0], got)
	}
	m.start(open)
	m.must(call{verb: "ADD", id: "late", conf: fairleadOf("")})
}

// A container ID that is too long for a file name gets no address, and DEL succeeds.
func TestFairleadLongContainerID(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeFile(t))
	id := strings.Repeat("a", 260)
	for _, keys := range []string{"", `, "pool": "fixed"`} {
		m.wantError(call{verb: "ADD", id: id, conf: fairleadOf(keys)}, 100, "file name too long")
		m.must(call{verb: "DEL", id: id, conf: fairleadOf(keys)})
	}
}

// Recently released addresses are allocated last, the oldest of them first.
func TestFairleadCoolDown(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeFile(t))
	four := fairleadOf(`, "pool": "extra", "coolDown": 3600`)
	add := func(id string) string { return ipsOf(t, m.must(call{verb: "ADD", id: id, conf: four}))[0] }
	var all []string
	for i := range 4 { // .11 to .14
		all = append(all, add(fmt.Sprint("c", i)))
	}
	del := func(id string) { m.must(call{verb: "DEL", id: id, conf: four}) }
	del("c2")
	del("c0")
	if got := add("d0"); got != all[2] {
		t.Errorf("the address released first is %s, got %s of %v", all[2], got, all)
	}
	del("c1")
	if got := add("d1"); got != all[0] {
		t.Errorf("got %s, want %s", got, all[0])
	}
	// d1's address was released within the cool-down, and another such address is free.
	del("d0")
	m.wantError(call{verb: "ADD", id: "d1", conf: four}, 100, "duplicate allocation is not allowed")
	_ = m.dir().Remove("default")
}

// Requested addresses are allocated, or the error says why not.
func TestFairleadRequested(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeFile(t))
	m.must(call{verb: "ADD", id: "c0", conf: fairleadOf("")})
	first := ""
	kerneltest.Until(t, func() bool {
		n, err := m.dir().Read("default")
		if err == nil && len(n.Subnets[0].Blocks) > 0 {
			first = n.Subnets[0].Blocks[0].Addr().String()
		}
		return first != ""
	})
	base := netip.MustParseAddr(first)
	nth := func(n int) string {
		a := base
		for range n {
			a = a.Next()
		}
		return a.String()
	}
	got := ipsOf(t, m.must(call{verb: "ADD", id: "c1", args: "IP=" + nth(9), conf: fairleadOf("")}))
	if !strings.HasPrefix(got[0], nth(9)+"/28 "+nth(1)) {
		t.Errorf("got %v", got)
	}
	m.wantError(call{verb: "ADD", id: "c2", args: "IP=" + nth(9), conf: fairleadOf("")}, 100, "already taken by container c1 eth0")
	m.wantError(call{verb: "ADD", id: "c2", args: "IP=" + nth(1), conf: fairleadOf("")}, 100, "is the gateway")
	m.wantError(call{verb: "ADD", id: "c2", args: "IP=10.9.0.1", conf: fairleadOf("")}, 7, "requested IP 10.9.0.1: an attachment gets one address from each of 10.244.0.0/26, fd00:244::/120")
	m.wantError(call{verb: "ADD", id: "c1", conf: fairleadOf("")}, 100, "duplicate allocation is not allowed")
	annotated := `{"cniVersion": "1.1.0", "name": "pods", "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"fairlead.io/ips": "` + nth(11) + `"}}, "ipam": {"type": "fairlead-ipam"}}`
	if got := ipsOf(t, m.must(call{verb: "ADD", id: "c3", conf: annotated})); !strings.HasPrefix(got[0], nth(11)+"/") {
		t.Errorf("got %v", got)
	}
	elsewhere := nth(16) // in the next block, which this node does not own
	if a := netip.MustParseAddr(elsewhere); !netip.MustParsePrefix("10.244.0.0/26").Contains(a) {
		elsewhere = "10.244.0.5"
	}
	m.wantError(call{verb: "ADD", id: "c4", args: "IP=" + elsewhere, conf: fairleadOf("")}, 7, "is in no block of this node")
	both := fairleadOf(`, "addresses": [{"family": 4}, {"pool": "extra"}, {"pool": "fixed"}]`)
	if got := ipsOf(t, m.must(call{verb: "ADD", id: "c5", conf: both})); len(got) != 3 || !strings.HasPrefix(got[1], "10.245.0.1") || !strings.Contains(got[2], "/29 10.250.0.1") {
		t.Errorf("got %v", got)
	}
	m.wantError(call{verb: "ADD", id: "c6", conf: fairleadOf(`, "pool": "none"`)}, 7, `network default has no subnet in pool "none": it has "" (10.244.0.0/26)`)
	m.wantError(call{verb: "ADD", id: "c6", conf: fairleadOf(`, "network": "none"`)}, 100, `the cluster has no network "none"`)
}

// A StatefulSet's pod has the same address on every node.
func TestFairleadFixed(t *testing.T) {
	t.Parallel()
	open := storeFile(t)
	one, two := newMember(t, "a"), newMember(t, "b")
	one.start(open)
	two.start(open)
	conf := fairleadOf(`, "pool": "fixed", "fixed": true`)
	pod := func(n int) string { return fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=db-%d", n) }
	ip := ipsOf(t, one.must(call{verb: "ADD", id: "c1", args: pod(0), conf: conf}))
	one.must(call{verb: "DEL", id: "c1", args: pod(0), conf: conf})
	other := ipsOf(t, two.must(call{verb: "ADD", id: "c2", args: pod(1), conf: conf}))
	if got := ipsOf(t, two.must(call{verb: "ADD", id: "c3", args: pod(0), conf: conf})); !slices.Equal(got, ip) || slices.Equal(got, other) {
		t.Errorf("on another node, %v became %v; the other pod has %v", ip, got, other)
	}
	// The same pod comes back on the same node before its old sandbox was removed.
	if got := ipsOf(t, two.must(call{verb: "ADD", id: "c4", args: pod(0), conf: conf})); !slices.Equal(got, ip) {
		t.Errorf("again: %v became %v", ip, got)
	}
	two.must(call{verb: "DEL", id: "c3", args: pod(0), conf: conf})
	two.must(call{verb: "CHECK", id: "c4", args: pod(0), conf: conf})
	one.wantError(call{verb: "ADD", id: "c5", conf: conf}, 100, "a fixed address needs a pod name")
	for i := range 3 {
		one.must(call{verb: "ADD", id: fmt.Sprint("d", i), args: pod(10 + i), conf: conf})
	}
	one.wantError(call{verb: "ADD", id: "d9", args: pod(19), conf: conf}, 11, "all addresses are in use")
}

// A GC of one CNI network keeps the addresses of other CNI networks on the same cluster network.
func TestFairleadGC(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	m.start(storeFile(t))
	conf := fairleadOf("")
	other := strings.Replace(conf, `"pods"`, `"more"`, 1)
	fixed := fairleadOf(`, "pool": "fixed"`)
	m.must(call{verb: "ADD", id: "keep", conf: conf})
	m.must(call{verb: "ADD", id: "drop", conf: conf})
	m.must(call{verb: "ADD", id: "theirs", conf: other})
	ip := ipsOf(t, m.must(call{verb: "ADD", id: "fix", conf: fixed}))[0]
	time.Sleep(20 * time.Millisecond) // a process's start has a resolution of 10 ms
	valid := `"cni.dev/valid-attachments": [{"containerID": "keep", "ifname": "eth0"}], `
	m.must(call{verb: "GC", conf: strings.Replace(conf, `"ipam"`, valid+`"ipam"`, 1)})
	m.must(call{verb: "CHECK", id: "keep", conf: conf})
	m.must(call{verb: "CHECK", id: "theirs", conf: other})
	m.wantError(call{verb: "CHECK", id: "drop", conf: conf}, 100, "has no address")
	m.wantError(call{verb: "CHECK", id: "fix", conf: fixed}, 100, "has no address")
	addr, _, _ := strings.Cut(ip, "/")
	kerneltest.Until(t, func() bool {
		code, _ := m.plugin("fairlead-ipam", call{verb: "ADD", id: "next", args: "IP=" + addr, conf: fixed})
		return code == 0
	})
}

// TestBlockRemovedDuringADD removes a block from the node's file while an ADD waits for the addresses. The ADD then uses
// the new blocks only.
func TestBlockRemovedDuringADD(t *testing.T) {
	t.Parallel()
	m := newMember(t, "a")
	n := &local.Network{Name: "default", Node: "a", Subnets: []local.Subnet{{CIDR: netip.MustParsePrefix("10.244.0.0/24"), Blocks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/28")}}}}
	if err := m.dir().Write(n); err != nil {
		t.Fatal(err)
	}
	lock, err := ipam.Open(t.Context(), m.dir().Addresses(), "default", ipam.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan string)
	go func() {
		_, out := m.plugin("fairlead-ipam", call{verb: "ADD", id: "c", conf: `{"cniVersion": "1.1.0", "name": "pods", "type": "bridge", "ipam": {"type": "fairlead-ipam"}}`})
		answer <- out
	}()
	time.Sleep(time.Second) // the ADD waits for the lock
	n.Subnets[0].Blocks[0] = netip.MustParsePrefix("10.244.0.16/28")
	if err := errors.Join(m.dir().Write(n), lock.Close()); err != nil {
		t.Fatal(err)
	}
	if out := <-answer; !strings.Contains(out, `"10.244.0.18/28"`) {
		t.Errorf("got %s", out)
	}
}
