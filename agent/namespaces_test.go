package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// ownHost moves the test to a host of its own, with its own /run: a reconciler removes every namespace of a network there that
// nobody needs. It returns the path of the mount namespace.
func ownHost(t *testing.T) (mounts string) {
	t.Helper()
	kerneltest.Host(t)
	kerneltest.PrivateMounts(t)
	if err := syscall.Mount("test", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/task/%d/ns/mnt", os.Getpid(), syscall.Gettid())
}

// networkNamespace creates the namespace of the network "blue", and returns its path and a reconciler.
func networkNamespace(t *testing.T) (k *kernelReconciler, path string) {
	t.Helper()
	k = openReconciler(t, &config.Config{MountNamespace: ownHost(t)})
	path = local.NetnsPath("blue")
	if err := netns.Create(k.conf.MountNamespace, path); err != nil {
		t.Fatal(err)
	}
	return k, path
}

// TestNamespaceOfADD checks that the agent leaves a network's namespace while a plugin attaches a container in it, and
// removes it afterwards.
func TestNamespaceOfADD(t *testing.T) {
	t.Parallel()
	k, path := networkNamespace(t)
	plugin, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close()
	if err := plugin.LockShared(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.removeNamespace("blue"); err != errAttaching {
		t.Errorf("during the ADD: %v", err)
	}
	if !plugin.IsAt(path) {
		t.Fatal("the namespace was removed during the ADD")
	}
	plugin.Unlock()
	if err := k.removeNamespace("blue"); err != nil {
		t.Errorf("after the ADD: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace exists: %v", err)
	}
}

// TestDeletedNamespacePath deletes the path of a network's namespace, as "ip -all netns delete" does, while the agent has the
// namespace open. The agent mounts it again, so the containers keep their links. Another namespace at the path replaces it.
func TestDeletedNamespacePath(t *testing.T) {
	t.Parallel()
	k, path := networkNamespace(t)
	reconciled := func() *netns.Handle {
		t.Helper()
		rep := &reconcile.Report{}
		k.reconcileNamespaces([]desired.Namespace{{Network: "blue"}}, false, rep)
		if err := errors.Join(rep.Errors...); err != nil {
			t.Fatal(err)
		}
		ns, err := netns.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Close)
		return ns
	}
	first := reconciled()
	if err := netns.Remove("", path); err != nil {
		t.Fatal(err)
	}
	if !reconciled().SameAs(first) {
		t.Error("the path leads to another namespace after it was deleted")
	}
	if err := errors.Join(netns.Remove("", path), netns.Create(k.conf.MountNamespace, path)); err != nil {
		t.Fatal(err)
	}
	if now := reconciled(); now.SameAs(first) || !now.SameAs(k.namespaces["blue"].ns) {
		t.Error("the agent does not use the namespace that replaced the network's")
	}
}
