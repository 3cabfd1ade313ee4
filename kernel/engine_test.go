package kernel_test

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestEngineOfAnotherNamespace uses an engine on a thread of a namespace that the engine does not know. The thread stays
// in that namespace.
func TestEngineOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	err := kerneltest.Inside(kerneltest.Netns(t), func() error {
		before, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		if err := e.InNetns(kernel.Container, func() error { return nil }); err != nil {
			return err
		}
		if now, err := os.Readlink("/proc/thread-self/ns/net"); now != before {
			t.Errorf("the thread is in %s, want %s: %v", now, before, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
