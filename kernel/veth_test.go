package kernel_test

import (
	"errors"
	"os"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRemoveLeavesLinkOfSameIndex removes a pair whose host end is gone, while the container has an interface of its name
// with a peer in a third namespace. The host has a link of the reference plugin with the index of that peer.
func TestRemoveLeavesLinkOfSameIndex(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	container, third := kerneltest.Netns(t), kerneltest.Netns(t)
	kerneltest.Run(t, "ip", "link", "add", "vethdeadbeef", "index", "77", "type", "veth", "peer", "name", "eth0", "netns", kerneltest.Netns(t))
	kerneltest.In(t, third, "ip", "link", "add", "other", "index", "77", "type", "veth", "peer", "name", "eth0", "netns", container)
	e := open(t, container, kernel.Options{})
	pair := &kernel.Veth{Name: owner.LinkName("veth"), PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: owner.Tag()}
	if err := e.Remove(kernel.Objects{pair}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Link(kernel.Host, "vethdeadbeef"); err != nil {
		t.Errorf("another container's link: %v", err)
	}
}

// TestRemovePairOfReference removes the pair that the reference plugin created for the container.
func TestRemovePairOfReference(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	container := kerneltest.Netns(t)
	kerneltest.Run(t, "ip", "link", "add", "vethdeadbeef", "type", "veth", "peer", "name", "eth0", "netns", container)
	e := open(t, container, kernel.Options{})
	pair := &kernel.Veth{Name: owner.LinkName("veth"), PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: owner.Tag()}
	if err := e.Remove(kernel.Objects{pair}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Link(kernel.Host, "vethdeadbeef"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pair is still there: %v", err)
	}
}
