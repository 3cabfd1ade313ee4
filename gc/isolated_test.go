package gc_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/libcni"
)

// TestIsolatedAttachment removes an attachment to an isolated network, without a configuration. Its host end is in the
// network's namespace.
func TestIsolatedAttachment(t *testing.T) {
	t.Parallel()
	owner := kernel.Owner{Network: "blue", ContainerID: "c1", IfName: "eth0"}
	network := kerneltest.Netns(t)
	kerneltest.In(t, network, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "p0")
	kerneltest.In(t, network, "ip", "link", "set", "v0", "alias", owner.Tag())
	root := t.TempDir()
	dir := attach.Open(root)
	r := dir.New(owner.Network, owner.ContainerID, owner.IfName, filepath.Join(root, "gone"))
	r.Host = network
	r.Parts = []attach.Part{{Plugin: "bridge", Done: true, Objects: attach.LazyOf(kernel.Objects{&kernel.Veth{Name: "v0", PeerSide: kernel.Container, PeerName: "eth0", OwnerTag: owner.Tag()}})}}
	if err := dir.Write(r); err != nil {
		t.Fatal(err)
	}
	r.Unlock()
	o := gc.Options{Runtime: libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), nil), StateDir: root, ConfDir: t.TempDir(), LibDir: t.TempDir()}
	if err := gc.RemoveAttachment(t.Context(), o, owner, ""); err != nil {
		t.Error(err)
	}
	if links := kerneltest.In(t, network, "ip", "-o", "link"); strings.Contains(links, "v0") {
		t.Errorf("left in the network's namespace: %s", links)
	}
}
