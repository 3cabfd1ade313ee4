package libcni

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// byReference is a file as the reference library 1.3.0 writes it.
const byReference = `{"kind":"cniCacheV1","containerId":"c1","config":"eyJuYW1lIjoibmV0In0K","ifName":"eth0","networkName":"net","netns":"/run/netns/x",` +
	`"cniArgs":[["A","1"]],"capabilityArgs":{"ips":["1.2.3.4/8"],"x":1},"result":{"cniVersion":"1.0.0","interfaces":[{"mtu":1400,"name":"eth0"}],"ips":[{"address":"10.1.0.2/24"}]}}`

func cacheWith(t *testing.T, files map[string]string) (*CNIConfig, *[]string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, "results", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, warnings := NewCNIConfigWithCacheDir(nil, dir, nil), &[]string{}
	c.Warn = func(msg string, err error) { *warnings = append(*warnings, msg+": "+err.Error()) }
	return c, warnings
}

func TestReferenceCacheFile(t *testing.T) {
	t.Parallel()
	c, warnings := cacheWith(t, map[string]string{"net-c1-eth0": byReference})
	list, rt := &NetworkConfigList{Name: "net", CNIVersion: "0.4.0"}, &RuntimeConf{ContainerID: "c1", IfName: "eth0"}
	r, err := c.GetNetworkListCachedResult(list, rt)
	if err != nil || r == nil || r.CNIVersion != "0.4.0" || r.Interfaces[0].MTU != 1400 || len(r.IPs) != 1 {
		t.Errorf("result %+v, %v", r, err)
	}
	conf, with, err := c.GetNetworkListCachedConfig(list, rt)
	if err != nil || string(conf) != "{\"name\":\"net\"}\n" || with.Args[0] != [2]string{"A", "1"} || with.CapabilityArgs["x"] != 1.0 {
		t.Errorf("configuration %q, %+v, %v", conf, with, err)
	}
	for id, want := range map[string]int{"": 1, "c1": 1, "c": 0} {
		if list, err := c.GetCachedAttachments(id); err != nil || len(list) != want {
			t.Errorf("%q: %v, %v", id, list, err)
		}
	}
	if len(*warnings) > 0 {
		t.Errorf("warnings %q", *warnings)
	}
}

func TestUnusableFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, content, warning string }{
		{"empty", "", "corrupt: 1:1: empty"},
		{"cut off", byReference[:100], "is corrupt: "},
		{"other kind", `{"kind":"cniCacheV9"}`, `kind = "cniCacheV9": want "cniCacheV1"`},
		{"wrong type", `{"kind":"cniCacheV1","cniArgs":7}`, "cniArgs = 7: want a list"},
		{"of another", strings.Replace(byReference, `"c1"`, `"c2"`, 1), "belongs to network net, container c2, interface eth0"},
		{"bad result", strings.Replace(byReference, "10.1.0.2/24", "ten", 1), `ips[0].address = "ten": want an address`},
	} {
		c, warnings := cacheWith(t, map[string]string{"net-c1-eth0": tt.content})
		r, err := c.GetNetworkCachedResult(confNamed(t, "net"), &RuntimeConf{ContainerID: "c1", IfName: "eth0"})
		if r != nil || err != nil || len(*warnings) != 1 || !strings.Contains((*warnings)[0], tt.warning) {
			t.Errorf("%s: %+v, %v, warnings %q", tt.name, r, err, *warnings)
		}
	}
}

func confNamed(t *testing.T, name string) *NetworkConfig {
	t.Helper()
	conf, err := ConfFromBytes([]byte(`{"cniVersion":"1.0.0","type":"x","name":"` + name + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

// TestUnreadableCacheFile checks that a file is spoiled only if no library can read it.
func TestUnreadableCacheFile(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]bool{"": true, byReference[:100]: true, `{"kind":"cniCacheV9"}`: false, `{"kind":"cniCacheV1","cniArgs":7}`: false} {
		c, _ := cacheWith(t, map[string]string{"net-c1-eth0": content})
		var cacheErr *CacheError
		c.Warn = func(_ string, err error) { cacheErr, _ = errors.AsType[*CacheError](err) }
		if list, err := c.GetCachedAttachments(""); err != nil || len(list) != 0 || cacheErr == nil || cacheErr.Spoiled != want {
			t.Errorf("%q: %v, %v, told %+v", content, list, err, cacheErr)
			continue
		}
		if old, err := cacheErr.Old(time.Hour); old || err != nil {
			t.Errorf("%q is old already: %v", content, err)
		}
		for _, ago := range []time.Duration{2 * time.Hour, -2 * time.Hour} { // negative: the clock was set back
			changed := time.Now().Add(-ago)
			if err := os.Chtimes(cacheErr.File, changed, changed); err != nil {
				t.Fatal(err)
			}
			if old, err := cacheErr.Old(time.Hour); old != want || err != nil {
				t.Errorf("%q, changed %v ago: old %v, want %v (%v)", content, ago, old, want, err)
			}
		}
		_ = os.Remove(cacheErr.File)
		if _, err := cacheErr.Old(time.Hour); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file that is gone: %v", err)
		}
	}
}

// Before the key kind existed, a file had only the result.
func TestLegacyFile(t *testing.T) {
	t.Parallel()
	c, warnings := cacheWith(t, map[string]string{"net-c1-eth0": `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.1.0.2/24"}],"dns":{}}`})
	conf, rt := confNamed(t, "net"), &RuntimeConf{ContainerID: "c1", IfName: "eth0"}
	if r, err := c.GetNetworkCachedResult(conf, rt); err != nil || r == nil || len(r.IPs) != 1 {
		t.Errorf("result %+v, %v", r, err)
	}
	if data, with, err := c.GetNetworkCachedConfig(conf, rt); data != nil || with != nil || err != nil {
		t.Errorf("configuration %s, %v, %v", data, with, err)
	}
	if list, err := c.GetCachedAttachments(""); len(list) != 0 || err != nil || len(*warnings) != 0 {
		t.Errorf("attachments %v, %v, %q", list, err, *warnings)
	}
}

// "a-b" and "c" have the same file name as "a" and "b-c".
func TestForgetKeepsOtherFile(t *testing.T) {
	t.Parallel()
	c, _ := cacheWith(t, map[string]string{"a-b-c-eth0": strings.NewReplacer(`"c1"`, `"b-c"`, `"net"`, `"a"`).Replace(byReference)})
	c.forget(network{name: "a-b"}, &RuntimeConf{ContainerID: "c", IfName: "eth0"})
	if list, err := c.GetCachedAttachments("b-c"); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestCacheOnOtherFileSystem checks that the cache works if its directory is another file system, as with the reference
// library: no file can be renamed into it.
func TestCacheOnOtherFileSystem(t *testing.T) {
	t.Parallel()
	other, err := os.MkdirTemp("/dev/shm", "fairlead-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	dir := t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "results")); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(dir, "results", "net-c1-eth0"), []byte(byReference)); err != nil {
		t.Fatal(err)
	}
	c := NewCNIConfigWithCacheDir(nil, dir, nil)
	list, err := c.GetCachedAttachments("c1")
	left, _ := os.ReadDir(dir)
	if err != nil || len(list) != 1 || len(left) != 1 {
		t.Errorf("%v, %v; in the directory is %v", list, err, left)
	}
}

// TestCacheBelowReadOnlyDirectory checks that the cache works if only its own directory is writable, as on hosts with a
// read-only root.
func TestCacheBelowReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	results := filepath.Join(dir, "results")
	kerneltest.PrivateMounts(t)
	if err := errors.Join(
		os.Mkdir(results, 0o700),
		syscall.Mount(dir, dir, "", syscall.MS_BIND, ""), syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""),
		syscall.Mount("results", results, "tmpfs", 0, ""),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the directory is removed
		_, _ = syscall.Unmount(results, syscall.MNT_DETACH), syscall.Unmount(dir, syscall.MNT_DETACH)
	})
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the directory is writable: %v", err)
	}
	if err := replaceFile(filepath.Join(results, "net-c1-eth0"), []byte(byReference)); err != nil {
		t.Fatal(err)
	}
	if list, err := NewCNIConfigWithCacheDir(nil, dir, nil).GetCachedAttachments("c1"); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestNoCache(t *testing.T) {
	t.Parallel()
	c := NewCNIConfigWithCacheDir(nil, filepath.Join(t.TempDir(), "none"), nil)
	if list, err := c.GetCachedAttachments(""); list != nil || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if got := (&CNIConfig{}).dir(&RuntimeConf{CacheDir: "/x"}); got != "/x" {
		t.Errorf("directory of the runtime: %s", got)
	}
	if got := (&CNIConfig{}).dir(&RuntimeConf{}); got != CacheDir {
		t.Errorf("default directory: %s", got)
	}
}

func FuzzParseCached(f *testing.F) {
	f.Add([]byte(byReference))
	f.Add([]byte(`{"ips":[]}`))
	f.Add([]byte(`{"kind":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := parseCached(data)
		if err == nil && info.Kind != "" && info.Kind != CNICacheV1 {
			t.Errorf("kind %q was accepted", info.Kind)
		}
	})
}

// TestFIFOInCache verifies that a FIFO in the place of a cached result is not waited for, also if a process has opened it
// for writing.
func TestFIFOInCache(t *testing.T) {
	t.Parallel()
	c, warnings := cacheWith(t, nil)
	fifo := filepath.Join(c.cacheDir, "results", "net-c1-eth0")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		if list, err := c.GetCachedAttachments(""); err != nil || len(list) > 0 || len(*warnings) != want+1 {
			t.Errorf("%v, %v, %q", list, err, *warnings)
		}
		writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
	}
}

// TestHugeFileInCache verifies that a huge file in the place of a cached result is not read.
func TestHugeFileInCache(t *testing.T) {
	t.Parallel()
	c, warnings := cacheWith(t, map[string]string{"net-c1-eth0": ""})
	if err := os.Truncate(filepath.Join(c.cacheDir, "results", "net-c1-eth0"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if list, err := c.GetCachedAttachments(""); err != nil || len(list) > 0 || len(*warnings) != 1 {
		t.Errorf("%v, %v, %q", list, err, *warnings)
	}
}
