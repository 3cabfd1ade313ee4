package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// policyHost is a router with the policies of policyFile for the node n1.
type policyHost struct {
	*router.Router
	*site
	file string
}

func newPolicyHost(t *testing.T) *policyHost {
	h := &policyHost{router.New(t), &site{t, append(os.Environ(), "HOME=/nowhere", "KUBECONFIG="), nil}, filepath.Join(t.TempDir(), "all.yaml")}
	must(t, os.WriteFile(h.file, []byte(policyFile), 0o600))
	return h
}

// enforce writes the rules of the file to the kernel.
func (h *policyHost) enforce(t *testing.T) *nftable.Table {
	t.Helper()
	w, _, err := manifest.Load(nil, h.file)
	must(t, err)
	table := policy.Compile(w, "n1")
	_, err = h.Table.Sync(t.Context(), table)
	must(t, err)
	return table
}

// udp is a packet that the policy drops if it is to the pod shop/db, 10.0.0.2.
func udp(src, dst string) router.Packet {
	return router.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: "UDP", Port: 53}
}

// log runs "policy log" while the packets flow, and returns the lines that it prints. stop ends it after the first one.
func (h *policyHost) log(t *testing.T, packets []router.Packet, stop bool, args ...string) (code int, lines []string, errs string) {
	t.Helper()
	cmd := exec.Command("fairlead", append([]string{"policy", "log"}, args...)...)
	var stderr strings.Builder
	cmd.Env, cmd.Stderr = h.env, &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	first, ended := make(chan bool, 1), make(chan bool)
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			if lines = append(lines, s.Text()); len(lines) == 1 {
				first <- true
			}
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	for end := time.Now().Add(kerneltest.Slow(20 * time.Second)); ; {
		h.Send(packets)
		select {
		case <-ended:
			_ = cmd.Wait() // the exit code says it
			return cmd.ProcessState.ExitCode(), lines, stderr.String()
		case <-first:
			if stop {
				must(t, cmd.Process.Signal(syscall.SIGINT))
			}
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("%q did not end: %q\n%s", args, lines, stderr.String())
		}
	}
}

// TestPolicyLog prints packets that a node drops, with names from a file and without, until a signal, a number or a time.
func TestPolicyLog(t *testing.T) {
	t.Parallel()
	h := newPolicyHost(t)
	if code, _, errs := h.log(t, nil, false); code != 1 || !strings.Contains(errs, "network policy is not in force on this host") {
		t.Errorf("without rules: exit code %d:\n%s", code, errs)
	}
	h.enforce(t)
	packets := []router.Packet{udp("10.0.0.1", "10.0.0.2"), udp("fd00::1", "fd00::2"), udp("10.0.0.1", "10.0.0.77")}

	code, lines, errs := h.log(t, packets, true, "-f", h.file)
	if want := " -> shop/db (10.0.0.2:53) UDP, ingress: no NetworkPolicy allows it: shop/db"; code != 0 || len(lines) == 0 || !strings.Contains(lines[0], "  shop/web (10.0.0.1:") || !strings.HasSuffix(lines[0], want) {
		t.Errorf("until Ctrl-C: exit code %d, %q, want %q\n%s", code, lines, want, errs)
	}
	code, lines, errs = h.log(t, packets[1:2], false, "--count", "2")
	if text := strings.Join(lines, "\n"); code != 0 || strings.Count(text, " -> [fd00::2]:53 UDP") != 2 || strings.Contains(text, "shop/web") || !strings.Contains(errs, "showing addresses only: there is no kubeconfig") {
		t.Errorf("two packets without names: exit code %d, %q\n%s", code, lines, errs)
	}
	if code, _, errs = h.log(t, nil, false, "--for", "10ms"); code != 0 {
		t.Errorf("for 10 ms: exit code %d\n%s", code, errs)
	}
	h.checkJSON(t, packets)
	for _, args := range [][]string{{"--pod", "shop/other", "-f", h.file}, {"--policy", "shop/other"}, {"--policy", "b"}} {
		if code, lines, errs := h.log(t, packets, false, append(args, "--for", "500ms")...); code != 0 || strings.Contains(strings.Join(lines, "\n"), "shop/db") {
			t.Errorf("%q: exit code %d, %q\n%s", args, code, lines, errs)
		}
	}
	for _, args := range [][]string{{"--pod", "shop/db", "-f", h.file}, {"--policy", "shop/db"}, {"--policy", "NetworkPolicy shop/db"}} {
		if code, lines, errs := h.log(t, packets, false, append(args, "--count", "1")...); code != 0 || len(lines) == 0 {
			t.Errorf("%q: exit code %d, %q\n%s", args, code, lines, errs)
		}
	}
}

// TestPolicyLogLongName checks that --policy shows the packets that a ClusterNetworkPolicy with a long name drops. A
// report has only the beginning of the name.
func TestPolicyLogLongName(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 150)
	r, err := policy.ParseReason(("ingress: ClusterNetworkPolicy " + name)[:124] + "…")
	must(t, err)
	for wanted, want := range map[string]bool{name: true, "ClusterNetworkPolicy " + name: true, "y" + name: false, "x": false, "shop/" + name: false} {
		if f := (&policyLogFlags{policy: wanted}); f.wants(dropped{}, r) != want {
			t.Errorf("--policy %q: shown %v, want %v", wanted, !want, want)
		}
	}
}

// checkJSON reads the fields of packets, and the number of those that were not reported during a flood.
func (h *policyHost) checkJSON(t *testing.T, packets []router.Packet) {
	t.Helper()
	flood := make([]router.Packet, 0, 100*len(packets))
	for range 100 {
		flood = append(flood, packets...)
	}
	code, lines, errs := h.log(t, flood, false, "-o", "json", "--for", "2s", "-f", h.file)
	more := 0
	for i, line := range lines {
		var d struct {
			dropped
			Unreported int `json:"unreported"`
		}
		must(t, json.Unmarshal([]byte(line), &d))
		more += d.Unreported
		if d.Unreported > 0 {
			continue
		}
		if d.Direction != "ingress" || d.Source.Pod != "shop/web" || d.Destination.Pod != "shop/db" || d.Destination.Port != 53 || d.Protocol != "UDP" ||
			len(d.Policies) != 1 || d.Policies[0] != "NetworkPolicy shop/db" || time.Since(d.Time) > kerneltest.Slow(time.Minute) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if code != 0 || len(lines) < 10 || more < 20 {
		t.Errorf("exit code %d, %d lines, %d packets were not reported\n%s", code, len(lines), more, errs)
	}
}

// TestUnreported reads the number of packets that were not reported, also when the table is a new one.
func TestUnreported(t *testing.T) {
	t.Parallel()
	h := newPolicyHost(t)
	table := h.enforce(t)
	var out strings.Builder
	l := &dropLog{a: &app{stdout: &out, format: formatJSON}, f: &policyLogFlags{}, table: h.Table}
	unreported := func() (n int) {
		t.Helper()
		out.Reset()
		must(t, l.unreported())
		var m notReported
		if out.Len() > 0 {
			must(t, json.Unmarshal([]byte(out.String()), &m))
		}
		return int(m.Unreported)
	}
	h.Send(slices.Repeat([]router.Packet{udp("10.0.0.1", "10.0.0.2")}, 200))
	if n := unreported(); n != 0 {
		t.Errorf("%d before the command began", n)
	}
	l.names = func(netip.Addr) (pod, node string) { return "", "" }
	h.Send(slices.Repeat([]router.Packet{udp("10.0.0.1", "10.0.0.2")}, 300))
	if n := unreported(); n < 200 || n > 300 {
		t.Errorf("%d of 300", n)
	}
	_, err := h.Table.Delete(t.Context(), table.Family, table.Name)
	must(t, err)
	if n := unreported(); n != 0 {
		t.Errorf("%d without a table", n)
	}
	_, err = h.Table.Sync(t.Context(), table)
	must(t, err)
	h.Send(slices.Repeat([]router.Packet{udp("10.0.0.1", "10.0.0.2")}, 100))
	if n := unreported(); n < 50 || n > 100 {
		t.Errorf("%d of 100 in a new table", n)
	}
}

// TestPolicyLogErrors checks what the command refuses.
func TestPolicyLogErrors(t *testing.T) {
	t.Parallel()
	h := newPolicyHost(t)
	table := h.enforce(t)
	refused := func(code int, words string, args ...string) {
		t.Helper()
		if got, lines, errs := h.log(t, nil, false, args...); got != code || !strings.Contains(errs, words) {
			t.Errorf("%q: exit code %d, want %d with %q: %q\n%s", args, got, code, words, lines, errs)
		}
	}
	refused(1, "--pod needs the names of pods: there is no kubeconfig", "--pod", "shop/db")
	refused(1, "there is no kubeconfig /nowhere", "--kubeconfig", "/nowhere")
	refused(1, "no such file", "-f", h.file+"x")
	refused(2, "must not be negative", "--count", "-1")
	refused(2, "--for x: want a duration", "--for", "x")

	first := exec.Command("fairlead", "policy", "log")
	first.Env = h.env
	out, err := first.StdoutPipe()
	must(t, err)
	must(t, first.Start())
	listens := make(chan bool, 1)
	go func() { listens <- bufio.NewScanner(out).Scan() }()
	kerneltest.Until(t, func() bool {
		h.Send([]router.Packet{udp("10.0.0.1", "10.0.0.2")})
		return len(listens) > 0
	})
	t.Cleanup(func() { _ = first.Process.Kill(); _ = first.Wait() })
	kerneltest.Eventually(t, func() error {
		if code, _, errs := h.log(t, nil, false, "--for", "1ms"); code == 1 && strings.Contains(errs, "(fairlead) receives them") {
			return nil
		}
		return os.ErrNotExist
	})

	// An agent on a kernel without log.
	delete(table.Chains, policy.UnreportedChain)
	for _, c := range table.Chains {
		for i := range c.Rules {
			if strings.Contains(c.Rules[i].Text, "limit") {
				c.Rules[i].Text = "counter drop"
			}
		}
	}
	_, err = h.Table.Sync(t.Context(), table)
	must(t, err)
	refused(1, "the rules on this node report no dropped packets")
}
