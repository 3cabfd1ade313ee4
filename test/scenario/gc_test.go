package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestGCOfManyAttachments checks that GC of many forgotten attachments does not wait for the kernel once per
// attachment, whether GC finds them by their records or by owner tags alone.
func TestGCOfManyAttachments(t *testing.T) {
	m := newMachine(t)
	file := m.Dir + "/net.conflist"
	conf := `{"cniVersion": "1.1.0", "name": "n", "plugins": [
	  {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "dataDir": "` + m.Dir + `/ipam", "subnet": "10.1.0.0/24"}},
	  {"type": "bandwidth", "ingressRate": 1000000, "egressRate": 1000000}]}`
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	bin, netns := programs, kerneltest.Netns(t)
	run := func(verb string, i int) time.Duration {
		t.Helper()
		cmd := exec.Command(bin+"/cni", verb, file, "NS", fmt.Sprintf("eth%d", i))
		cmd.Env = m.Env("CNI_PATH="+bin, "NS="+netns, "LIST_MODE=in-process", "CONTAINER=c", "VALID=")
		start := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", verb, err, out)
		}
		return time.Since(start)
	}
	const many = 60
	// gc returns how long a GC of many attachments takes, and a DEL of one right after it.
	gc := func(forget ...string) (all, one time.Duration) {
		t.Helper()
		for i := range many {
			run("add", i)
		}
		for _, dir := range forget {
			if err := os.RemoveAll(m.Dir + "/" + dir); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Millisecond) // a process's start time has a resolution of 10 ms, and GC skips anything newer
		all = run("gc", 0)
		if left := kerneltest.Run(t, "sh", "-c", "ip -br link show type veth; ip -br link show type ifb; ls "+m.Dir+"/ipam/n | grep 10[.] || true"); left != "" {
			t.Errorf("GC without %v leaves: %s", forget, left)
		}
		run("add", 0)
		return all, run("del", 0)
	}
	for name, forget := range map[string][]string{"attachments with records": {"cache"}, "links with owner tags": {"cache", "run/attach"}} {
		// Other processes may slow down any one GC, but not each of several. A wait per attachment would.
		for try := 1; ; try++ {
			all, one := gc(forget...)
			t.Logf("%s: one DEL %v, GC of %d %v", name, one, many, all)
			if all <= many*one/2 {
				break
			}
			if try == 4 {
				t.Errorf("%s: GC of %d took %v, and one DEL %v", name, many, all, one)
				break
			}
		}
	}
}
