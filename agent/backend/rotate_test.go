package backend_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestKeyRotation rotates a node's key under traffic in both directions. The peer, which the store does not tell about
// the second step, detects the new key by itself.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	hosts := lan(t, true, false)[:2]
	n := network(cluster.Backend{Type: cluster.WireGuard})
	both := func() {
		for _, h := range hosts {
			h.join(t, n, hosts)
		}
	}
	for _, h := range hosts {
		h.contain(t, 1440)
	}
	both()
	a, b := hosts[0], hosts[1]
	reach := []string{"ping", "-c1", "-w" + fmt.Sprint(int(kerneltest.Slow(15*time.Second).Seconds())), b.four.String()}
	kerneltest.In(t, a.container, reach...)
	there, back := pinging(t, a, b), pinging(t, b, a)
	limit := 0 // of some hundreds of packets in both directions, one each 10 ms; the machine may be slow at any of the steps
	raise := func() { limit = max(limit, int(kerneltest.Slow(600*time.Millisecond)/(10*time.Millisecond))) }
	turn := func(file string) {
		t.Helper()
		raise()
		old := time.Now().Add(-2 * backend.Grace)
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
		var err error
		if a.node.WireGuard, a.node.Previous, err = a.keys.Rotate(time.Now(), backend.Grace); err != nil {
			t.Fatal(err)
		}
	}
	first := a.node.WireGuard
	turn(a.keys.File)
	if a.node.Previous != first || a.node.WireGuard == first {
		t.Fatalf("published %q and %q, the first was %q", a.node.WireGuard, a.node.Previous, first)
	}
	both()
	time.Sleep(time.Second)
	received := *a.node // the node as b reads it from the store
	turn(a.keys.File + ".next")
	a.join(t, n, hosts)
	a.node = &received
	kerneltest.Eventually(t, func() error {
		time.Sleep(100 * time.Millisecond) // the first packet starts a session, on a busy machine later than that
		b.join(t, n, hosts)                // a reconciliation for another reason
		return exec.Command("nsenter", "--net="+a.container, "ping", "-c1", "-W0.2", b.four.String()).Run()
	})
	time.Sleep(time.Second)
	raise()
	kerneltest.In(t, a.container, reach...)
	if lost := there() + back(); lost > limit {
		t.Errorf("%d packets lost, at most %d are allowed", lost, limit)
	} else {
		t.Logf("%d packets lost", lost)
	}
}

// pinging pings a container every 10 ms until the caller calls lost and 100 answers have arrived. It returns the number of
// lost packets.
func pinging(t *testing.T, from, to *host) (lost func() int) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+from.container, "ping", "-i", "0.01", to.four.String())
	out, err := os.CreateTemp(t.TempDir(), "ping")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() int {
		t.Helper()
		kerneltest.Until(t, func() bool {
			raw, err := os.ReadFile(out.Name())
			return err == nil && bytes.Count(raw, []byte("bytes from")) >= 100
		})
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		raw, _ := os.ReadFile(out.Name())
		m := regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`).FindSubmatch(raw)
		if m == nil {
			t.Fatalf("output of ping: %.2000s", raw)
		}
		sent, _ := strconv.Atoi(string(m[1]))
		got, _ := strconv.Atoi(string(m[2]))
		return sent - got
	}
}
