package netns_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// fewFilesEnv makes TestAllWithoutDescriptors list the namespaces with few file descriptors.
const fewFilesEnv = "FAIRLEAD_NETNS_FEW_FILES"

// TestAllWithoutDescriptors checks that a list of all namespaces is an error if the process lacks file descriptors: a
// shorter list would mean that the namespaces have ended.
func TestAllWithoutDescriptors(t *testing.T) {
	t.Parallel()
	if os.Getenv(fewFilesEnv) != "" {
		listWithFewFiles(t)
		return
	}
	for range 8 {
		kerneltest.Netns(t)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAllWithoutDescriptors$")
	cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func listWithFewFiles(t *testing.T) {
	all, err := netns.All()
	if err != nil || len(all) < 8 {
		t.Fatalf("%d namespaces, %v", len(all), err)
	}
	for _, ns := range all {
		ns.Close()
	}
	f, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	limit := uint64(f.Fd()) + 5
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	if all, err := netns.All(); err == nil || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("%d namespaces, %v; want an error", len(all), err)
	}
}
