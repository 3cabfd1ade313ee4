package nftable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// childVersion is the environment variable that makes the test's program write a version of the table and exit.
const childVersion = "NFTABLE_TEST_VERSION"

func TestMain(m *testing.M) {
	version, err := strconv.Atoi(os.Getenv(childVersion))
	if err != nil {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // strace counts the system calls of a thread
	p, err := nftable.Open()
	if err == nil {
		_, err = p.Sync(context.Background(), closing(version))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestKilled kills a process before each message that it sends to replace a table. Meanwhile a sender that both contents
// reject sends packets: none passes. The next Sync completes the table.
func TestKilled(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	loopback(t, "10.1.0.1", "10.1.0.2")
	f := newFlow(t, "10.1.0.2", "10.1.0.1", 5000)
	p := open(t)
	for _, c := range []struct{ from, to, messages int }{
		{0, 1, 10}, // no set or chain exists in both, except one
		{6, 7, 10}, // a hook and a type differ: a second table, and one transaction for everything
	} {
		sync(t, p, closing(c.to))
		want := listed(t, "", closing(c.to))
		sync(t, p, closing(c.from))
		end := f.flood(t)
		n := 1
		for ; killedAt(t, c.to, n); n++ {
			sync(t, p, closing(c.to))
			if d := kerneltest.Diff(want, listed(t, "", closing(c.to))); d != "" {
				t.Errorf("%d to %d, killed before message %d: want (-), have (+):\n%s", c.from, c.to, n, d)
			}
			if tables := kerneltest.Run(t, "nft", "list", "tables"); tables != "table inet fairlead-switch\n" {
				t.Errorf("%d to %d, killed before message %d: left\n%s", c.from, c.to, n, tables)
			}
			sync(t, p, closing(c.from))
		}
		if n < c.messages {
			t.Errorf("%d to %d: only %d messages", c.from, c.to, n)
		}
		if sent := end(); sent < 100 {
			t.Errorf("only %d packets were sent", sent)
		}
		if n := f.received(); n > 0 {
			t.Errorf("%d to %d: %d packets passed", c.from, c.to, n)
		}
	}
}

// killedAt runs a process that writes a version of the table, and kills it before its nth message. It reports false if
// the process sent fewer.
func killedAt(t *testing.T, version, n int) bool {
	t.Helper()
	cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto", "-e", fmt.Sprintf("inject=sendto:signal=KILL:when=%d", n), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childVersion, version))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() > 0 && exit.ExitCode() != 137 {
		t.Fatalf("%v\n%s", err, out)
	}
	return true
}
