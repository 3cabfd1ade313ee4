package kernel_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// shaped returns a pair and the IFB that shapes it, like the plugin bandwidth.
func shaped(o kernel.Owner) kernel.Objects {
	return kernel.Objects{
		&kernel.Veth{Name: o.LinkName("veth"), MAC: o.MAC("host"), PeerSide: kernel.Container, PeerName: o.IfName, PeerMAC: o.MAC("container"), OwnerTag: o.Tag()},
		&kernel.IFB{Name: o.LinkName("bwp"), MAC: o.MAC("ifb"), MTU: 1500, OwnerTag: o.Tag()},
		&kernel.Up{Link: o.LinkName("bwp")},
	}
}

// TestRemoveInOneGroup checks that one deletion removes several links, but neither another attachment's link nor one
// with the same name and another owner tag.
func TestRemoveInOneGroup(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	other := open(t, kerneltest.Netns(t), kernel.Options{})
	first, second := shaped(owner), shaped(kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"})
	for _, err := range []error{e.Apply(first), other.Apply(second)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before := kerneltest.Dump(t, "")
	if err := e.Remove(first); err != nil {
		t.Fatal(err)
	}
	after := kerneltest.Dump(t, "")
	for _, o := range []string{owner.LinkName("veth"), owner.LinkName("bwp")} {
		if !strings.Contains(before, o) || strings.Contains(after, o) {
			t.Errorf("%s: before\n%s\nafter\n%s", o, before, after)
		}
	}
	if d, err := other.Compare(second); err != nil || len(d) > 0 {
		t.Errorf("the other's: %v, %v", d, err)
	}
	unknown := shaped(kernel.Owner{Network: "net", ContainerID: "c2", IfName: "eth0"})
	unknown[0].(*kernel.Veth).OwnerTag, unknown[1].(*kernel.IFB).OwnerTag = owner.Tag(), owner.Tag()
	if err := errors.Join(e.Remove(unknown), e.Remove(first)); err != nil {
		t.Errorf("others' links, and links that are gone: %v", err)
	}
	if d, err := other.Compare(second); err != nil || len(d) > 0 {
		t.Errorf("the other's, by a wrong mark: %v, %v", d, err)
	}
}

// TestObjectError checks that an error names its object, and that DiscardUndo keeps what was applied.
func TestObjectError(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, kerneltest.Netns(t), kernel.Options{})
	list := shaped(owner)[:1]
	if err := e.Apply(list); err != nil {
		t.Fatal(err)
	}
	e.DiscardUndo()
	again := shaped(owner)[0]
	err := e.Apply(kernel.Objects{&kernel.Sysctl{Key: "net/ipv4/ip_forward", Value: "1", IsShared: true}, again})
	o, ok := errors.AsType[*kernel.ObjectError](err)
	if !ok || o.Object != again || !errors.Is(err, unix.EEXIST) || !strings.HasPrefix(err.Error(), again.String()+": ") {
		t.Errorf("%v", err)
	}
	if err := e.Undo(); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Compare(list); err != nil || len(d) > 0 {
		t.Errorf("after DiscardUndo: %v, %v", d, err)
	}
}
