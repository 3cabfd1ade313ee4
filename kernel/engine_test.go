package kernel_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestRepairTapInUse repairs the hardware address of a tap that a virtual machine has open.
func TestRepairTapInUse(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Needs(t, "tap")
	ns, id := kerneltest.Netns(t), 7
	e := open(t, ns, kernel.Options{})
	list := kernel.Objects{&kernel.Tap{Name: "eth0", MAC: "02:00:00:00:00:02", UID: &id, GID: &id, OwnerTag: "fairlead n/c/eth0"}}
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	e.DiscardUndo()
	err := kerneltest.Inside(ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		req, err := unix.NewIfreq("eth0")
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		// A child that another test starts may have the engine's descriptor for a moment.
		kerneltest.Within(t, 10*time.Second, func() error { return unix.IoctlIfreq(fd, unix.TUNSETIFF, req) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	kerneltest.In(t, ns, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:99")
	done, err := e.Repair(list)
	if err != nil || len(done) != 1 || done[0].Err != nil {
		t.Errorf("repair: %v, %v", done, err)
	}
	if got := kerneltest.In(t, ns, "ip", "link", "show", "eth0"); !strings.Contains(got, "02:00:00:00:00:02") {
		t.Errorf("after the repair: %s", got)
	}
}
