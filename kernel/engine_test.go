package kernel_test

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestEngineOfAnotherNamespace uses an engine on a thread of a namespace that the engine does not know. The thread stays
// in that namespace.
func TestEngineOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	err := kerneltest.Inside(kerneltest.Netns(t), func() error {
		before, err := netns.Current()
		if err != nil {
			return err
		}
		defer before.Close()
		if err := e.InNetns(kernel.Container, func() error { return nil }); err != nil {
			return err
		}
		now, err := netns.Current()
		if err != nil {
			return err
		}
		defer now.Close()
		if !now.SameAs(before) {
			t.Error("the thread is in another namespace")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
