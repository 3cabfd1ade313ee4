package agent

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// networkNamespace returns a reconciler, and a network with the path of its namespace, which is removed with the test.
func networkNamespace(t *testing.T, word string) (k *kernelReconciler, network, path string) {
	t.Helper()
	kerneltest.Host(t)
	k, err := newKernelReconciler(&config.Config{})
	if err != nil {
		t.Fatal(err)
	}
	network = fmt.Sprintf("%s-%d", word, os.Getpid())
	path = local.NetnsPath(network)
	t.Cleanup(func() {
		k.close()
		_ = netns.Remove("", path)
	})
	return k, network, path
}

// TestNamespaceOfADD checks that the agent leaves a network's namespace while a plugin attaches a container in it, and
// removes it afterwards.
func TestNamespaceOfADD(t *testing.T) {
	t.Parallel()
	k, network, path := networkNamespace(t, "add")
	if err := netns.Create("", path); err != nil {
		t.Fatal(err)
	}
	plugin, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Close()
	if err := plugin.LockShared(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.removeNamespace(network); err != errAttaching {
		t.Errorf("during the ADD: %v", err)
	}
	if !plugin.IsAt(path) {
		t.Fatal("the namespace was removed during the ADD")
	}
	plugin.Unlock()
	if err := k.removeNamespace(network); err != nil {
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
	k, network, path := networkNamespace(t, "deleted")
	reconciled := func() *netns.Handle {
		t.Helper()
		rep := &reconcile.Report{}
		k.reconcileNamespaces([]desired.Namespace{{Network: network}}, false, rep)
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
	if err := errors.Join(netns.Remove("", path), netns.Create("", path)); err != nil {
		t.Fatal(err)
	}
	if now := reconciled(); now.SameAs(first) || !now.SameAs(k.namespaces[network].ns) {
		t.Error("the agent does not use the namespace that replaced the network's")
	}
}
