package plugin

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/skel"
)

// TestFailedUndoKeepsAddresses undoes an ADD whose device cannot return to the host, because another link has its name by
// now. The device is still in the container with its address, so nobody else may get the address.
func TestFailedUndoKeepsAddresses(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "up0")
	s := newSession(t.Context(), t.TempDir())
	defer s.close()
	if err := s.begin(kerneltest.Netns(t), true); err != nil {
		t.Fatal(err)
	}
	released := 0
	release := func(context.Context, *skel.CmdArgs) error { released++; return nil }
	s.jobs = []*job{{session: s, ipam: ipam{name: "x", added: true, local: &IPAM{Plugin: skel.Plugin{Funcs: skel.CNIFuncs{Del: release}}}}}}
	owner := kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"}
	if err := s.engine.Apply(kernel.Objects{&kernel.HostDevice{Device: "dev0", Name: "eth0", OwnerTag: kernel.HostDeviceTag(owner, "dev0")}}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "x0")
	if err := s.undo(t.Context()); err == nil || released > 0 {
		t.Errorf("undo: %v; the address was released %d times", err, released)
	}
}
