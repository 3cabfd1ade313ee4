package repair_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/repair"
)

// TestDetachedInTheMeantime verifies that a DEL between the list of attachments and the repair is no failure.
func TestDetachedInTheMeantime(t *testing.T) {
	t.Parallel()
	dir, runtime := attach.Open(t.TempDir()), libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), nil)
	listed := dir.New("net", "c1", "eth0", "/proc/self/ns/net")
	listed.Parts = []attach.Part{{Plugin: "bridge", Done: true,
		Objects: attach.LazyOf(kernel.Objects{&kernel.Up{In: kernel.Host, Link: "gone"}})}}
	for _, dry := range []bool{false, true} {
		if r := repair.Attachment(dir, runtime, listed, dry); r.Skipped == "" || r.Error != "" || len(r.Restored)+len(r.Failed) > 0 {
			t.Errorf("dry %v: got %+v", dry, r)
		}
	}
}

// TestReadsOneResult checks that the repair of an attachment reads no cached result but its own: a large host has thousands.
func TestReadsOneResult(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	if err := os.Mkdir(filepath.Join(cache, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, "results", "other-c1-eth0"), []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, runtime := attach.Open(t.TempDir()), libcni.NewCNIConfigWithCacheDir(nil, cache, nil)
	runtime.Warn = func(msg string, err error) { t.Errorf("%s: %v", msg, err) }
	repair.ChangedByOthers(runtime, dir.New("net", "c1", "eth0", "/proc/self/ns/net"))
}
