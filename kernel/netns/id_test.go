package netns_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestIDOfReusedInode creates and removes namespaces until the kernel uses an inode again. Both namespaces have the
// same device and inode, and different IDs.
func TestIDOfReusedInode(t *testing.T) {
	t.Parallel()
	seen := map[string]netns.ID{}
	deadline := time.Now().Add(kerneltest.Slow(time.Minute))
	for n := 1; time.Now().Before(deadline); n++ {
		id := idOfShortLived(t)
		old, again := seen[id.File]
		if !again {
			seen[id.File] = id
			continue
		}
		t.Logf("namespace %d has the inode of an earlier one", n)
		if old.Same(id) {
			t.Errorf("%+v, then %+v: the IDs of two namespaces are the same", old, id)
		}
		return
	}
	t.Fatalf("%d namespaces had different inodes: this kernel does not use them again", len(seen))
}

// idOfShortLived returns the ID of a namespace that has ended.
func idOfShortLived(t *testing.T) (id netns.ID) {
	t.Helper()
	err := netns.InNew(func(*netlink.Conn) error {
		n, err := netns.Current()
		if err != nil {
			return err
		}
		defer n.Close()
		id, err = n.ID()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestIDAt compares the ID of an open namespace, of its path, and of a namespace that replaced it there.
func TestIDAt(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	path := kerneltest.Netns(t)
	n, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	id, err := n.ID()
	if err != nil || id != netns.IDAt(path) || id.Cookie == 0 {
		t.Fatalf("open: %+v, %v; at its path: %+v", id, err, netns.IDAt(path))
	}
	is := func(want bool, id netns.ID, what string) {
		t.Helper()
		if have, err := id.IsAt(path); err != nil || have != want {
			t.Errorf("%s: %v, %v", what, have, err)
		}
	}
	is(true, id, "the namespace")
	is(true, netns.ID{File: id.File}, "recorded without a cookie")
	is(false, netns.ID{File: id.File, Cookie: id.Cookie + 1}, "an earlier namespace with the same inode")
	is(false, netns.ID{}, "no namespace")
	kerneltest.Run(t, "mount", "--bind", kerneltest.Netns(t), path)
	is(false, id, "replaced")
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil { // a process that another test starts may have it open for a moment
		t.Fatal(err)
	}
	is(true, id, "back")
	none := filepath.Join(t.TempDir(), "none")
	if is, err := id.IsAt(none); is || !os.IsNotExist(err) || netns.IDAt(none) != (netns.ID{}) {
		t.Errorf("without a file: %v, %v", is, err)
	}
}
