package ipam

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
)

// The containers and networks of a burst, and how many times the cost of starting as
// many processes it may have.
const (
	burstContainers = 128
	burstNetworks   = 16
	burstAtMost     = 3 // twice where nothing else runs: docs/performance.md
)

// All containers of three nodes want an address of each of many networks at once:
// none is given twice, and it takes little more than starting the processes.
func TestWhereaboutsBurst(t *testing.T) {
	program := buildProgram(t)
	c := etcdtest.Start(t, etcdtest.Options{})
	var nodes []*member
	for i := range 3 {
		m := newMember(t, fmt.Sprint("n", i))
		m.start(func() (store.Store, error) { return store.Etcd(c.Options()) })
		nodes = append(nodes, m)
	}
	for _, m := range nodes {
		storetest.Eventually(t, func() bool {
			code, _ := m.plugin("whereabouts", call{verb: "STATUS", conf: strings.Replace(whereaboutsOf(`"range": "10.0.0.0/24"`), "1.0.0", "1.1.0", 1)})
			return code == 0
		})
	}
	starts := burst(t, func(int, int) *exec.Cmd {
		cmd := exec.Command(program, "whereabouts")
		cmd.Env = []string{"CNI_COMMAND=VERSION"}
		cmd.Stdin = strings.NewReader(`{"cniVersion": "1.0.0"}`)
		return cmd
	}, nil)
	var mu sync.Mutex
	given := map[string]string{}
	adds := burst(t, func(container, network int) *exec.Cmd {
		return whereaboutsOn(program, nodes[container%3], "ADD", container, network)
	}, func(container, network int, out string) {
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprint(network, " ", ipsOf(t, out))
		if other := given[key]; other != "" {
			t.Errorf("%s is given to %s and %d", key, other, container)
		}
		given[key] = fmt.Sprint(container)
	})
	dels := burst(t, func(container, network int) *exec.Cmd {
		return whereaboutsOn(program, nodes[container%3], "DEL", container, network)
	}, nil)
	t.Logf("%d processes started: %v; as many ADDs of whereabouts: %v (%.2f times), DELs: %v", burstContainers*burstNetworks, starts, adds, adds.Seconds()/starts.Seconds(), dels)
	if len(given) != burstContainers*burstNetworks {
		t.Errorf("%d addresses were given", len(given))
	}
	if adds > burstAtMost*starts {
		t.Errorf("it took %v, more than %d times %v", adds, burstAtMost, starts)
	}
	s := c.Store(t)
	storetest.Eventually(t, func() bool {
		list, _, err := s.List(storetest.Context(t), "addresses/")
		return err == nil && len(list) == 0
	})
}

// buildProgram builds fairlead-cni: what is started is what users start.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fairlead-cni")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "../../cmd/fairlead-cni")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func whereaboutsOn(program string, m *member, verb string, container, network int) *exec.Cmd {
	cmd := exec.Command(program, "whereabouts")
	c := call{verb: verb, id: fmt.Sprint("c", container), ifname: fmt.Sprint("net", network)}
	cmd.Env = []string{local.LibVariable + "=" + m.lib, local.RunVariable + "=" + m.run}
	for k, v := range c.env() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin = strings.NewReader(whereaboutsOf(fmt.Sprintf(`"range": "10.0.0.0/24", "network_name": "n%d"`, network)))
	return cmd
}

// burst runs a command for each container on each network: the containers at once,
// the networks of one after the other, as Multus does.
func burst(t *testing.T, command func(container, network int) *exec.Cmd, done func(container, network int, out string)) time.Duration {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for container := range burstContainers {
		all.Go(func() {
			for network := range burstNetworks {
				cmd := command(container, network)
				var out bytes.Buffer
				cmd.Stdout = &out
				if err := cmd.Run(); err != nil {
					t.Errorf("container %d, network %d: %v: %s", container, network, err, out.String())
					return
				}
				if done != nil {
					done(container, network, out.String())
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}
