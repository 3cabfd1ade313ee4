package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestConcurrentContainers attaches sixteen containers concurrently to a host without state, and detaches them
// concurrently. No address and no rule exists twice, and nothing is left.
func TestConcurrentContainers(t *testing.T) {
	for _, mode := range []string{"", "fused", "in-process"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			runConcurrentContainers(t, newMachine(t), mode)
		})
	}
}

func runConcurrentContainers(t *testing.T, m *machine, mode string) {
	file := m.Dir + "/net.conflist"
	conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [
	  {"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "dataDir": "` + m.Dir + `/ipam", "subnet": "10.1.0.0/24"}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "bandwidth", "egressRate": 1000000}]}`
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	const n = 16
	netns := make([]string, n)
	for i := range netns {
		netns[i] = kerneltest.Netns(t)
	}
	bin := programs
	// A process inherits the namespace of the thread that starts it, here this thread's.
	all := func(verb string) string {
		var out [n]strings.Builder
		var wg sync.WaitGroup
		for i := range n {
			cmd := exec.Command(bin+"/cni", verb, file, "NS")
			cmd.Env = m.Env("CNI_PATH="+bin, "NS="+netns[i], "LIST_MODE="+mode,
				fmt.Sprintf("CONTAINER=c%d", i), fmt.Sprintf(`CAP_ARGS={"portMappings":[{"hostPort":%d,"containerPort":80}]}`, 8000+i))
			cmd.Stdout, cmd.Stderr = &out[i], &out[i]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%s c%d: %v: %s", verb, i, err, out[i].String())
				}
			})
		}
		wg.Wait()
		var s strings.Builder
		for i := range out {
			s.WriteString(out[i].String())
		}
		return s.String()
	}
	seen := map[string]bool{}
	for _, ip := range regexp.MustCompile(`"address":"([0-9.]+)`).FindAllStringSubmatch(all("add"), -1) {
		if seen[ip[1]] {
			t.Errorf("%s was allocated twice", ip[1])
		}
		seen[ip[1]] = true
	}
	ruleset := kerneltest.Run(t, "nft", "list", "ruleset")
	if len(seen) != n || strings.Count(ruleset, "jump masq-n-10.1.0.0/24") != 1 || strings.Count(ruleset, "jump hostports-n-10.1.0.0/24") != 1 {
		t.Errorf("%d addresses; ruleset:\n%s", len(seen), ruleset)
	}
	all("check")
	all("del")
	left := kerneltest.Dump(t, "")
	if strings.Contains(left, "veth") || regexp.MustCompile(`\b10\.1\.0\.([2-9]|1[0-7])\b`).MatchString(left) || strings.Contains(left, "fairlead n ") {
		t.Errorf("left behind:\n%s", left)
	}
	if d, _ := os.ReadDir(m.Dir + "/run/hostports"); len(d) > 0 {
		t.Errorf("%d host ports are still claimed", len(d))
	}
}

// TestConcurrentContainersInProcess does the same within one process, with 16 goroutines of a runtime.
func TestConcurrentContainersInProcess(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [` + fullList + `]}`
	var netns []string
	for range 16 {
		netns = append(netns, kerneltest.Netns(t))
	}
	for _, verb := range []string{"add", "check", "del", "del"} {
		out, err := m.cni("each "+verb, conf, "", strings.Join(netns, ","), "", "LIST_MODE=in-process")
		if err != nil {
			t.Fatalf("%s: %v\n%s", verb, err, out)
		}
		if verb != "add" {
			continue
		}
		seen := map[string]bool{}
		for _, ip := range regexp.MustCompile(`"address":"([0-9.]+)`).FindAllString(out, -1) {
			seen[ip] = true
		}
		if len(seen) != len(netns) {
			t.Errorf("%d addresses for %d containers:\n%s", len(seen), len(netns), out)
		}
	}
	left := kerneltest.Dump(t, "")
	if strings.Contains(left, "veth") || strings.Contains(left, "bwp") || strings.Contains(left, "fairlead n ") {
		t.Errorf("left behind:\n%s", left)
	}
}
