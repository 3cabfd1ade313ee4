package kerneltest

import (
	"fmt"
	"os"
	"testing"
)

// ThreadsLeave waits until wrong holds for the network namespace of no thread of the process. A namespace is named as
// in /proc/thread-self/ns/net, such as "net:[4026531840]". The wait is for threads that end: netns.OnOwnThread returns
// before the kernel has removed its thread. A thread that stays ends the test.
func ThreadsLeave(t testing.TB, wrong func(netns string) bool) {
	t.Helper()
	Eventually(t, func() error {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			netns, err := os.Readlink("/proc/self/task/" + thread.Name() + "/ns/net")
			if err == nil && wrong(netns) { // a thread that ended has no file
				return fmt.Errorf("thread %s is in %s", thread.Name(), netns)
			}
		}
		return nil
	})
}
