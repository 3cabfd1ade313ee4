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

// TestApplyLeavesOthersLink applies a pair whose host name is an alternative name of another link. The tag, which follows
// in the same write, must not make that link the owner's, because the undo then deleted it.
func TestApplyLeavesOthersLink(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	name := owner.LinkName("veth")
	kerneltest.Run(t, "ip", "link", "add", "other", "type", "bridge")
	kerneltest.Run(t, "ip", "link", "property", "add", "dev", "other", "altname", name)
	pair := &kernel.Veth{Name: name, PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: owner.Tag()}
	if err := e.Apply(kernel.Objects{pair}); !errors.Is(err, os.ErrExist) {
		t.Errorf("Apply: %v", err)
	}
	if err := e.Remove(kernel.Objects{pair}); err != nil {
		t.Error(err)
	}
	if l, err := e.Link(kernel.Host, "other"); err != nil || l.Alias != "" {
		t.Errorf("the other link: %+v, %v", l, err)
	}
}
