package ipam

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// workerEnv makes the test binary a process that allocates and releases, to be killed or to compete with others.
const workerEnv = "FAIRLEAD_IPAM_WORKER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(workerEnv); spec != "" {
		if err := work(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(smallDiskEnv); dir != "" {
		if err := onSmallDisk(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// workerSets returns the few addresses that all workers compete for.
func workerSets() ([]RangeSet, error) {
	return CompleteSets([]RangeSet{
		{{Subnet: netip.MustParsePrefix("10.1.0.0/27")}},
		{{Subnet: netip.MustParsePrefix("fd00::/123")}},
	})
}

// work does n random operations. It prints "- owner" before a release and "+ owner address address" after an
// allocation.
func work(spec string) error {
	var dir, name string
	var seed uint64
	var n int
	if _, err := fmt.Sscan(spec, &dir, &name, &seed, &n); err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 2))
	sets, err := workerSets()
	if err != nil {
		return err
	}
	holds := map[int]bool{}
	for range n {
		i := rnd.IntN(8)
		o := Owner{fmt.Sprintf("%s-%d", name, i), "eth0"}
		if err := workOnce(dir, o, sets, holds, i); err != nil {
			return err
		}
	}
	return nil
}

func workOnce(dir string, o Owner, sets []RangeSet, holds map[int]bool, i int) error {
	s, err := Open(context.Background(), dir, "net", Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if holds[i] {
		fmt.Println("-", o.ContainerID)
		_, err := s.Release(o)
		delete(holds, i)
		return err
	}
	if _, err := s.Release(o); err != nil { // left by a killed predecessor
		return err
	}
	ips, err := s.Allocate(o, sets, nil)
	if err != nil {
		if strings.Contains(err.Error(), ErrExhausted.Error()) {
			return nil
		}
		return err
	}
	holds[i] = true
	fmt.Println("+", o.ContainerID, ips[0].Address.Addr(), ips[1].Address.Addr())
	return nil
}

// startWorker starts a worker. Its output lists the addresses that it reports as allocated.
func startWorker(t testing.TB, dir, name string, seed uint64, n int) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", workerEnv, dir, name, seed, n))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// claims reads what a worker holds at its end: owner -> its addresses.
func claims(r io.Reader) map[string][]string {
	holds := map[string][]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if f[0] == "+" {
			holds[f[1]] = f[2:]
		} else {
			delete(holds, f[1])
		}
	}
	return holds
}
