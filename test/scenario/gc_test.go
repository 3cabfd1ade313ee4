package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestGCOfManyAttachments checks that GC of many forgotten attachments does not wait for the kernel once per
// attachment, whether GC finds them by their records or by owner tags alone: it deletes their links together.
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
	run := func(i int, argv ...string) {
		t.Helper()
		cmd := exec.Command(argv[0], append(argv[1:], file, "NS", fmt.Sprintf("eth%d", i))...)
		cmd.Env = m.Env("CNI_PATH="+bin, "NS="+netns, "LIST_MODE=in-process", "CONTAINER=c", "VALID=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", argv, err, out)
		}
	}
	const many = 60
	for name, forget := range map[string][]string{"attachments with records": {"cache"}, "links with owner tags": {"cache", "run/attach"}} {
		for i := range many {
			run(i, bin+"/cni", "add")
		}
		for _, dir := range forget {
			if err := os.RemoveAll(m.Dir + "/" + dir); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Millisecond) // a process's start time has a resolution of 10 ms, and GC skips anything newer
		trace := m.Dir + "/trace"
		run(0, "strace", "-f", "-qq", "-v", "-s", "100000", "-e", "trace=sendto", "-o", trace, bin+"/cni", "gc")
		if left := kerneltest.Run(t, "sh", "-c", "ip -br link show type veth; ip -br link show type ifb; ls "+m.Dir+"/ipam/n | grep 10[.] || true"); left != "" {
			t.Errorf("%s: GC leaves: %s", name, left)
		}
		calls, err := os.ReadFile(trace)
		if n := strings.Count(string(calls), "nlmsg_type=RTM_DELLINK"); err != nil || n == 0 || n > many/4 {
			t.Errorf("%s: GC of %d deletes links in %d requests, %v", name, many, n, err)
		}
	}
}
