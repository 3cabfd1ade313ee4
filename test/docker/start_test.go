package docker

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// drivers are the networks that TestStart compares: this driver's, and Docker's own.
func drivers() []string { return []string{"fairlead", "bridge"} }

// TestStart times the start of containers with this driver and with Docker's own bridge in turn: one by one, and 50 at
// once. It calls Docker's API, so the client's time does not count.
func TestStart(t *testing.T) {
	m, _ := newLab(t)
	for _, d := range drivers() {
		m.docker("network", "create", "--driver", d, "--subnet", map[string]string{"fairlead": "10.20.0.0/24", "bridge": "10.21.0.0/24"}[d], d+"-net")
	}
	m.docker("run", "--rm", "--network", "bridge-net", "box", "echo") // caches are warm
	alone, together := map[string][]time.Duration{}, map[string][]time.Duration{}
	for range 30 {
		for _, d := range drivers() {
			m.create("c0", d)
			alone[d] = append(alone[d], m.startContainer("c0"))
			m.docker("rm", "--force", "c0")
		}
	}
	for range 3 {
		for _, d := range drivers() {
			together[d] = append(together[d], m.startTogether(d, 50)...)
		}
	}
	for _, d := range drivers() {
		t.Logf("| %s | %s | %s |", d, percentiles(alone[d]), percentiles(together[d]))
	}
	m.remove()
	m.docker("network", "rm", "bridge-net")
	m.nothingLeft()
}

func percentiles(list []time.Duration) string {
	slices.Sort(list)
	at := func(p int) time.Duration { return list[min(len(list)-1, len(list)*p/100)].Round(time.Millisecond) }
	return fmt.Sprintf("%d starts, p50 %v, p99 %v", len(list), at(50), at(99))
}

func (m *machine) create(name, driver string) {
	m.t.Helper()
	m.docker("create", "--name", name, "--network", driver+"-net", "box", "sleep", "1000")
}

// startTogether starts containers at once, and checks that each reaches the host.
func (m *machine) startTogether(driver string, n int) []time.Duration {
	m.t.Helper()
	times := make([]time.Duration, n)
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("c", i))
		m.create(names[i], driver)
	}
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { times[i] = m.startContainer(names[i]) })
	}
	group.Wait()
	for _, name := range []string{names[0], names[n-1]} {
		m.in(name, "ping", "-c1", "-W2", m.V4.String())
	}
	if driver == "fairlead" {
		kerneltest.Eventually(m.t, func() error {
			if out := m.fairlead("list"); strings.Count(out, " ok") != n {
				return fmt.Errorf("list shows %d endpoints, want %d", strings.Count(out, " ok"), n)
			}
			return nil
		})
	}
	m.docker(append([]string{"rm", "--force"}, names...)...)
	return times
}

// startContainer starts a container by Docker's API.
func (m *machine) startContainer(name string) time.Duration {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		Dial:              func(string, string) (net.Conn, error) { return net.Dial("unix", m.Path(socket)) },
	}}
	began := time.Now()
	res, err := client.Post("http://docker/containers/"+name+"/start", "application/json", nil)
	if err != nil {
		m.t.Error(err)
		return 0
	}
	took := time.Since(began)
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		var answer struct{ Message string }
		_ = json.NewDecoder(res.Body).Decode(&answer)
		m.t.Errorf("start %s: %s: %s", name, res.Status, answer.Message)
	}
	return took
}
