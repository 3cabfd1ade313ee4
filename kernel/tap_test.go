package kernel_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

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
	var fd int
	err := kerneltest.Inside(ns, func() (err error) { // which decides the namespace of the tap
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	req, err := unix.NewIfreq("eth0")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	// A child that another test starts may have the engine's descriptor for a moment.
	kerneltest.Within(t, 10*time.Second, func() error { return unix.IoctlIfreq(fd, unix.TUNSETIFF, req) })
	kerneltest.In(t, ns, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:99")
	done, err := e.Repair(list)
	if err != nil || len(done) != 1 || done[0].Err != nil {
		t.Errorf("repair: %v, %v", done, err)
	}
	if got := kerneltest.In(t, ns, "ip", "link", "show", "eth0"); !strings.Contains(got, "02:00:00:00:00:02") {
		t.Errorf("after the repair: %s", got)
	}
}
