package kernel

import (
	"errors"
	"os"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestTemporaryName creates a link under its temporary name. It uses the type ifb, for which the parent does not matter.
func TestTemporaryName(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := openIn(t, openNetns(t, kerneltest.Netns(t)))
	o := Owner{Network: "net", ContainerID: "c1", IfName: "eth0"}
	link := &StackedLink{Type: "ifb", Name: "eth0", Parent: "lo", OwnerTag: o.Tag()}
	for _, interrupted := range []bool{false, true} {
		if err := link.createAs(e, link.temporaryName()); err != nil {
			t.Fatal(err)
		}
		if !interrupted {
			if err := link.rename(e, link.temporaryName()); err != nil {
				t.Fatal(err)
			}
			if l, err := e.Link(Container, "eth0"); err != nil || l.Alias != o.Tag() {
				t.Errorf("%+v, %v", l, err)
			}
		}
		if err := e.Remove(Objects{link}); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"eth0", link.temporaryName()} {
			if _, err := e.Link(Container, name); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s (interrupted %v): %v", name, interrupted, err)
			}
		}
	}
}

// TestNameOfHostLink checks when a name is taken on the host only.
func TestNameOfHostLink(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	container := kerneltest.Netns(t)
	e := openIn(t, openNetns(t, container))
	link := &StackedLink{Type: "macvlan", Name: "eth0", Parent: "lo"}
	if link.onlyHostHas(e) {
		t.Error("the host has no such link")
	}
	kerneltest.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	if !link.onlyHostHas(e) {
		t.Error("only the host has it")
	}
	kerneltest.In(t, container, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	if link.onlyHostHas(e) {
		t.Error("the container has it, too")
	}
}

func openNetns(t *testing.T, path string) *netns.Handle {
	t.Helper()
	ns, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	return ns
}
