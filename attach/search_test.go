package attach_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
)

// TestListWith checks that the search finds the records with a text, and passes over files that are no records. It must not
// cost what List costs, which decodes each record of the host.
func TestListWith(t *testing.T) {
	root := t.TempDir()
	d := attach.Open(root)
	for i := range 200 {
		o := kernel.Owner{Network: fmt.Sprint("net", i%3), ContainerID: fmt.Sprint("c", i), IfName: "eth0"}
		r := record(d, o)
		if i%100 == 7 {
			r.Parts[0].Objects = attach.LazyOf(kernel.Objects{&kernel.Up{Link: "distinct-7"}})
		}
		if err := errors.Join(create(d, r), d.Finish(r, 0)); err != nil {
			t.Fatal(err)
		}
	}
	loop := filepath.Join(root, "attach", "net1", "loop,eth0.json")
	if err := errors.Join(os.Symlink(loop, loop), os.WriteFile(filepath.Join(root, "attach", "net1", "torn,eth0.json"), []byte(`{"x":"distinct-7`), 0o600)); err != nil {
		t.Fatal(err)
	}
	got, err := d.ListWith([]string{"distinct-7", "no such text"})
	if err != nil || len(got) != 2 || got[0].ContainerID != "c7" || got[1].ContainerID != "c107" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := d.ListWith(nil); err != nil || len(got) > 0 {
		t.Errorf("without a text: %v, %v", got, err)
	}
	few := testing.AllocsPerRun(1, func() { _, _ = d.ListWith([]string{"distinct-7"}) })
	all := testing.AllocsPerRun(1, func() { _, _ = d.List("") })
	if few > all/2 {
		t.Errorf("the search needs %v allocations, and a list %v", few, all)
	}
}
