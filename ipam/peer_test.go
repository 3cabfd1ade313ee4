package ipam

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/reference"
)

// asReference runs the reference plugin host-local on a data directory.
func asReference(t testing.TB, verb, dir, id, ranges string) (addrs []string, err error) {
	t.Helper()
	cmd := exec.Command(reference.Plugin(t, "host-local"))
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/x", "CNI_PATH=/opt/cni/bin"}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.1.0", "name": "net", "ipam": {"type": "host-local", "dataDir": %q, "ranges": %s}}`, dir, ranges))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if verb != "ADD" {
		return nil, nil
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Errorf("result of the reference plugin: %v: %s", err, out)
	}
	for _, ip := range result.IPs {
		addrs = append(addrs, ip.Address.Addr().String())
	}
	return addrs, nil
}

const workerRanges = `[[{"subnet": "10.1.0.0/27"}], [{"subnet": "fd00::/123"}]]`

// workAsReference does a worker's operations with the reference plugin.
func workAsReference(t *testing.T, dir, name string, seed uint64, n int) map[string][]string {
	rnd := rand.New(rand.NewPCG(seed, 4))
	holds := map[string][]string{}
	for range n {
		id := fmt.Sprintf("%s-%d", name, rnd.IntN(8))
		if holds[id] != nil {
			delete(holds, id)
			asReference(t, "DEL", dir, id, workerRanges)
		} else if addrs, err := asReference(t, "ADD", dir, id, workerRanges); err == nil {
			holds[id] = addrs
		} else if !strings.Contains(err.Error(), "no IP addresses available") {
			t.Errorf("ADD by the reference plugin: %v", err)
		}
	}
	return holds
}

// TestSwitchAndBack switches a directory between the implementations while containers run.
func TestSwitchAndBack(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	const ranges = `[[{"subnet": "10.1.0.0/24"}]]`
	runReference := func(verb, id string) string {
		t.Helper()
		addrs, err := asReference(t, verb, dir, id, ranges)
		if verb == "ADD" && err != nil {
			t.Fatal(err)
		}
		return strings.Join(addrs, " ")
	}
	ours := func(id string) string { return allocate(t, dir, Options{}, Owner{id, "eth0"}, sets)[0].String() }
	for i, step := range []struct{ got, want string }{
		{runReference("ADD", "a"), "10.1.0.2"}, {ours("b"), "10.1.0.3"}, {runReference("ADD", "c"), "10.1.0.4"},
		{runReference("DEL", "b"), ""}, {ours("d"), "10.1.0.5"}, {ours("e"), "10.1.0.6"}, {runReference("ADD", "f"), "10.1.0.7"},
	} {
		if step.got != step.want {
			t.Errorf("step %d: got %q, want %q", i, step.got, step.want)
		}
	}
	if got := release(t, dir, Owner{"a", "eth0"}); len(got) != 1 {
		t.Errorf("our plugin releases %v, which the reference plugin allocated to container a", got)
	}
	if _, err := asReference(t, "CHECK", dir, "d", ranges); err != nil {
		t.Errorf("CHECK of our container by the reference plugin: %v", err)
	}
	if got := held(t, dir); len(got) != 4 {
		t.Errorf("allocated: %v", got)
	}
	consistent(t, dir)
}

// TestChangeWithinClockTick lets the reference plugin change the directory right after Fairlead does, within one tick
// of a coarse clock. The index must notice.
func TestChangeWithinClockTick(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	d := directory(dir + "/net")
	for i := range 200 {
		id := fmt.Sprint("c", i)
		got := allocate(t, dir, Options{}, Owner{id, "eth0"}, sets)[0]
		if err := (&Store{dir: d}).remove(got); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, d.file(got), "other\r\neth0")
		if freed := release(t, dir, Owner{"other", "eth0"}); len(freed) != 1 {
			t.Fatalf("round %d: the reference plugin's address is not found", i)
		}
	}
}

// TestLegacyAddressFiles releases files that contain only the container ID, as the reference plugin does.
func TestLegacyAddressFiles(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	allocate(t, dir, Options{}, Owner{"both", "eth0"}, sets)
	d := directory(dir + "/net")
	mustWrite(t, d.file(addr("10.1.0.50")), "both")
	mustWrite(t, d.file(addr("10.1.0.51")), " old\n")
	for _, c := range []struct {
		id   string
		want int
	}{{"both", 1}, {"both", 1}, {"both", 0}, {"old", 1}, {"old", 0}} {
		if got := release(t, dir, Owner{c.id, "eth0"}); len(got) != c.want {
			t.Errorf("release of %s frees %v, want %d", c.id, got, c.want)
		}
	}
}
