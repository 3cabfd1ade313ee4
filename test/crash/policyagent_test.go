package crash

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// policyHost is a host whose agent enforces policies from files. Its directory has two states of the policies and the
// containers, "before" and "after", and the current one in "now".
type policyHost struct {
	*testing.T
	dir     string
	table   *nftable.Programmer
	in, out *os.File
	denied  []policy.Packet // in both states
	after   string          // the rules of the second state
}

const (
	policyAgentName = "policyagent" // argv[0] of the traced process
	changing        = "changing"    // a file that it opens before it changes the state
)

// policyAgentMain enforces what is in a directory's "now". With another argument, it changes the state to that one when the
// first one is in force. It ends when policy is in force.
func policyAgentMain() {
	dir := os.Args[1]
	ctx := context.Background()
	e := enforce.New(enforce.Options{Directory: filepath.Join(dir, "now", "policies"), Node: "here", Attachments: podstate.Open(local.Open(filepath.Join(dir, "now"), filepath.Join(dir, "now"))), Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	go func() { fail(e.Run(ctx)) }()
	wait := func() {
		for e.Problem() != "" {
			time.Sleep(5 * time.Millisecond)
		}
	}
	wait()
	if len(os.Args) > 2 {
		_, _ = os.Stat(filepath.Join(dir, changing))
		fail(copyTree(filepath.Join(dir, os.Args[2]), filepath.Join(dir, "now")))
		p, err := nftable.Open()
		fail(err)
		for found := false; !found; time.Sleep(20 * time.Millisecond) {
			t, err := p.Read(ctx, policy.TableFamily, policy.TableName)
			fail(err)
			for _, c := range t.Chains {
				for _, r := range c.Rules {
					found = found || strings.Contains(r.Comment, "default/late")
				}
			}
		}
	}
	os.Exit(0)
}

// copyTree copies files. Each appears as a whole.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(from, path) // it is below
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(to, rel), 0o700))
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		unfinished := filepath.Join(to, filepath.Dir(rel), ".new")
		return errors.Join(os.WriteFile(unfinished, raw, 0o600), os.Rename(unfinished, filepath.Join(to, rel)))
	})
}

// The second state closes a port to web and an address to job, opens one to job, deletes a policy and adds others, with new
// sets of addresses and ranges, and has one container more. What is closed in both is closed in every order of the changes.
const (
	policiesBefore = `
{policy: db, for: app=db, in: [{from: app=web}, {from: [192.0.2.0/24]}]}
---
{policy: job, for: app=job, out: []}
---
{policy: old, for: app=web, in: [{from: "app in (x,y)"}]}
`
	policiesAfter = `
{policy: db, for: app=db, in: [{from: app=web, ports: 80}, {from: [198.51.100.0/24, 192.0.2.128/25]}]}
---
{policy: job, for: app=job, out: [{to: app=db}]}
---
{policy: late, for: app=web, in: [{from: "app in (y,z)"}], out: [{ports: [80, 53/udp]}]}
`
)

func newPolicyHost(t *testing.T) *policyHost {
	m := kerneltest.NewMachine(t, container)
	m.Install(policyAgentName)
	h := &policyHost{T: t, dir: m.Dir}
	var err error
	h.table, err = nftable.Open()
	must(t, err)
	t.Cleanup(h.table.Close)
	for name, f := range map[string]**os.File{"stdin": &h.in, "stdout": &h.out} {
		*f, err = os.OpenFile(filepath.Join(h.dir, name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		must(t, err)
		t.Cleanup(func() { _ = (*f).Close() })
	}
	boot, err := bootid.Read()
	must(t, err)
	containers := []string{"web", "db", "job"}
	for state, policies := range map[string]string{"before": policiesBefore, "after": policiesAfter} {
		files := filepath.Join(h.dir, state, "policies")
		must(t, errors.Join(os.MkdirAll(files, 0o700), os.WriteFile(filepath.Join(files, "all.yaml"), []byte(policies), 0o600)))
		for i, name := range append(containers, map[string]string{"before": "gone", "after": "new"}[state]) {
			e := &podstate.Endpoint{ContainerID: name, IfName: "eth0", Labels: map[string]string{"app": name}, Boot: boot}
			e.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
			must(t, podstate.Open(local.Open(filepath.Join(h.dir, state), filepath.Join(h.dir, state))).WriteEndpoint(e))
		}
	}
	h.reset("before")
	h.run()
	before := h.evaluator()
	h.reset("after")
	h.run()
	after := h.evaluator()
	h.after = h.rules()
	for _, p := range probes() {
		if !h.allows(before, p) && !h.allows(after, p) {
			h.denied = append(h.denied, p)
		}
	}
	if len(h.denied) < 20 {
		t.Fatalf("only %d packets are denied in both states", len(h.denied))
	}
	return h
}

// probes are packets between all containers, and from and to outside.
func probes() (out []policy.Packet) {
	var all []netip.Addr
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "192.0.2.1", "192.0.2.200", "198.51.100.1", "203.0.113.1"} {
		all = append(all, netip.MustParseAddr(a))
	}
	for _, src := range all {
		for _, dst := range all {
			for _, port := range []uint16{53, 80, 81} {
				if src != dst {
					out = append(out, policy.Packet{Src: src, Dst: dst, Protocol: "TCP", Port: port}, policy.Packet{Src: src, Dst: dst, Protocol: "UDP", Port: port})
				}
			}
		}
	}
	return out
}

// reset makes a state the current one.
func (h *policyHost) reset(state string) {
	h.Helper()
	must(h.T, errors.Join(os.RemoveAll(filepath.Join(h.dir, "now")), copyTree(filepath.Join(h.dir, state), filepath.Join(h.dir, "now"))))
}

// process returns the agent as a program to trace.
func (h *policyHost) process(args ...string) program {
	path := filepath.Join(h.dir, "bin", policyAgentName)
	return program{path: path, argv: append([]string{path, h.dir}, args...), env: os.Environ(), in: h.in, out: h.out}
}

// run brings the current state into force.
func (h *policyHost) run() {
	h.Helper()
	if out, err := exec.Command(h.process().path, h.dir).CombinedOutput(); err != nil {
		h.Fatalf("the agent ended: %v\n%s", err, out)
	}
}

func (h *policyHost) read() *nftable.Table {
	h.Helper()
	t, err := h.table.Read(h.Context(), policy.TableFamily, policy.TableName)
	must(h.T, err)
	return t
}

func (h *policyHost) evaluator() *policy.Evaluator { return policy.NewEvaluator(h.read()) }

func (h *policyHost) allows(v *policy.Evaluator, p policy.Packet) bool {
	h.Helper()
	d, err := v.Decide(p)
	must(h.T, err)
	return d.Allowed
}

// rules returns the kernel's rules as text.
func (h *policyHost) rules() string {
	h.Helper()
	return kerneltest.Mask(kerneltest.Run(h, "nft", "list", "table", policy.TableFamily, policy.TableName), kerneltest.Counters)
}

// play kills an agent at a call, while it starts with the second state or, with change, while the state changes. It reports
// whether the agent made so many calls.
func (h *policyHost) play(change bool, n int) (reached bool) {
	h.Helper()
	h.reset("before")
	h.run()
	var p program
	began := !change
	if change {
		p = h.process("after")
	} else {
		h.reset("after")
		p = h.process()
	}
	seen := 0
	p.at = func(c *call) action {
		if began = began || strings.HasSuffix(c.class(), changing) || strings.HasSuffix(c.text(1), "/"+changing); !began {
			return action{}
		}
		if seen++; seen < n {
			return action{}
		}
		return action{kill: true, last: true}
	}
	e, err := trace(p)
	must(h.T, err)
	v := h.evaluator()
	for _, x := range h.denied {
		if h.allows(v, x) {
			h.Errorf("killed at call %d (change %v): %+v passes", n, change, x)
		}
	}
	h.reset("after")
	h.run()
	if diff := kerneltest.Diff(h.after, h.rules()); diff != "" { // the kernel's order may differ
		h.Errorf("killed at call %d (change %v), after a restart:\n%s", n, change, diff)
	}
	return e.killed
}

// TestPolicyAgentKilled kills an agent at its system calls, while it writes policies to the kernel. What was closed, and
// stays closed, is closed. FAIRLEAD_SAMPLE=1000000 plays all calls.
func TestPolicyAgentKilled(t *testing.T) {
	t.Parallel()
	h := newPolicyHost(t)
	for _, change := range []bool{false, true} {
		calls := 0
		for n := 1; ; n *= 2 { // find how many calls there are
			if !h.play(change, n) {
				break
			}
			calls = n
		}
		step, played := max(calls/sampleSize(), 1), 0
		first := rand.New(rand.NewPCG(seed(t), 0)).IntN(step)
		for n := 1 + first; h.play(change, n); n += step {
			played++
		}
		t.Logf("change %v: %d of %d calls, %d packets", change, played, played*step, len(h.denied))
		if played == 0 {
			t.Error("no call was reached")
		}
	}
}
