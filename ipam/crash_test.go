package ipam

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
)

// TestKill kills a worker at random points and checks that no file is torn, no reported address is lost, and the index
// is correct.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 3))
	for round := range 30 {
		name := fmt.Sprintf("r%d", round)
		cmd, out := startWorker(t, dir, name, rnd.Uint64(), 1_000_000)
		timer := time.AfterFunc(time.Duration(5_000+rnd.IntN(20_000))*time.Microsecond, func() { cmd.Process.Kill() })
		holds := claims(out)
		cmd.Wait()
		timer.Stop()
		if _, err := os.Stat(dir + "/net"); err != nil && len(holds) == 0 {
			continue // on a busy machine the first may be killed before it starts
		}
		verify(t, dir, holds)
		consistent(t, dir)
		for i := range 8 { // a runtime's DEL frees everything
			release(t, dir, Owner{fmt.Sprintf("%s-%d", name, i), "eth0"})
		}
		if left := held(t, dir); len(left) > 0 {
			t.Fatalf("round %d leaves %v", round, left)
		}
	}
}

// verify compares the directory with what a worker reported.
func verify(t *testing.T, dir string, holds map[string][]string) {
	t.Helper()
	owners := held(t, dir)
	for a, o := range owners {
		if o.ContainerID == "" || o.IfName != "eth0" {
			t.Errorf("%s is torn: %q", a, o)
		}
	}
	for id, addrs := range holds {
		for _, a := range addrs {
			if owners[addr(a)].ContainerID != id {
				t.Errorf("%s was allocated to %s, but the directory says %q", a, id, owners[addr(a)].ContainerID)
			}
		}
	}
}

// TestConcurrentProcesses runs Fairlead's processes and the reference plugin at once. A file has only one owner. So if
// everyone still has the reported addresses at the end, no address was allocated twice and none was lost.
func TestConcurrentProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var mu sync.Mutex
	all := map[string][]string{}
	note := func(holds map[string][]string) {
		mu.Lock()
		defer mu.Unlock()
		for id, addrs := range holds {
			all[id] = addrs
		}
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			cmd, out := startWorker(t, dir, fmt.Sprintf("ours%d", i), uint64(i), 400)
			note(claims(out))
			if err := cmd.Wait(); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	for i := range 2 {
		wg.Go(func() { note(workAsReference(t, dir, fmt.Sprintf("theirs%d", i), uint64(i), 60)) })
	}
	wg.Wait()
	verify(t, dir, all)
	consistent(t, dir)
	count := 0
	for _, addrs := range all {
		count += len(addrs)
	}
	if got := held(t, dir); len(got) != count {
		t.Errorf("%d addresses are allocated, want %d", len(got), count)
	}
}
