package kerneltest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	patience = 40 * time.Second // limit of a wait on an idle machine
	interval = 10 * time.Millisecond
)

// Until waits until a condition holds. It ends the test if that takes too long.
func Until(t testing.TB, is func() bool) {
	t.Helper()
	Within(t, patience, func() error {
		if is() {
			return nil
		}
		return errNotYet
	})
}

var errNotYet = errors.New("the condition does not hold")

// Eventually calls try until it succeeds, and returns the time that it took. It ends the test with the last error if that
// takes too long.
func Eventually(t testing.TB, try func() error) time.Duration {
	t.Helper()
	return Within(t, patience, try)
}

// Within is Eventually with a limit of its own, for an idle machine.
func Within(t testing.TB, limit time.Duration, try func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for end := began.Add(limit); ; time.Sleep(interval) {
		late := time.Now().After(end)
		if late {
			end = began.Add(Slow(limit)) // measured only now: most waits are short
			late = time.Now().After(end)
		}
		err := try() // once more after the end: the last try may have taken long
		if err == nil {
			return time.Since(began)
		}
		if late {
			t.Fatalf("after %v: %v", time.Since(began).Round(time.Second), err)
		}
	}
}

// AddrsInUse waits until the kernel uses each IPv6 address of a network namespace that was added with nodad. Only then it
// answers neighbours who ask for the address. A kernel worker does the last steps, for which it needs the network lock: on a
// machine that starts and ends many containers, that took 38 s.
func AddrsInUse(t testing.TB, netns string) {
	t.Helper()
	Eventually(t, func() error {
		routes := In(t, netns, "ip", "-6", "route", "show", "table", "local", "type", "local")
		for line := range strings.Lines(In(t, netns, "ip", "-6", "-oneline", "addr", "show")) {
			f := strings.Fields(line) // 2: eth0 inet6 fd00::2/64 scope global nodad
			addr, _, _ := strings.Cut(f[3], "/")
			if used := "local " + addr + " dev " + f[1] + " "; strings.Contains(line, " nodad ") && !strings.Contains(routes, used) {
				return fmt.Errorf("%s does not use %s yet: no %q in\n%s", f[1], addr, used, routes)
			}
		}
		return nil
	})
}
