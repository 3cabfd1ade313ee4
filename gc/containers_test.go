package gc_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
)

// TestCacheWithoutNetns reads the result of a runtime that stores no namespace, such as one with an old libcni. It
// does not tell whether the container exists, so the attachment counts as living.
func TestCacheWithoutNetns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	results := filepath.Join(dir, "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, netns := range map[string]string{"old": "", "dead": `"netns":"` + dir + `/gone",`} {
		data := `{"kind":"cniCacheV1","containerId":"` + name + `","config":"e30=","ifName":"eth0","networkName":"n",` + netns + `"result":{}}`
		if err := os.WriteFile(filepath.Join(results, "n-"+name+"-eth0"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := gc.Options{Runtime: libcni.NewCNIConfigWithCacheDir(nil, dir, nil), StateDir: filepath.Join(dir, "state")}
	living, dead, err := gc.Attachments(o, "n")
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) []cni.Attachment { return []cni.Attachment{{ContainerID: id, IfName: "eth0"}} }
	if !slices.Equal(living, at("old")) || !slices.Equal(dead, at("dead")) {
		t.Errorf("living %v, dead %v", living, dead)
	}
	ids, err := gc.ExistingContainers(o, nil)
	if err != nil || !slices.Equal(ids, []string{"old"}) {
		t.Errorf("existing containers: %v, %v", ids, err)
	}
}

// TestAttachmentBeforeItsRecord checks that an attachment counts as living while its ADD has only a reservation, for
// example because it waits for an address. The plugins of a GC run one after another, and the last of them may see an
// attachment that has been added since, but began before the GC.
func TestAttachmentBeforeItsRecord(t *testing.T) {
	t.Parallel()
	o := gc.Options{Runtime: libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), nil), StateDir: t.TempDir()}
	reservation, err := attach.Open(o.StateDir).Reserve(kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	defer reservation.Free()
	living, dead, err := gc.Attachments(o, "n")
	if want := []cni.Attachment{{ContainerID: "c", IfName: "eth0"}}; err != nil || !slices.Equal(living, want) || len(dead) > 0 {
		t.Errorf("living %v, dead %v, %v", living, dead, err)
	}
}
