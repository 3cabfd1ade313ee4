package netnspath

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestResolve(t *testing.T) {
	kerneltest.Host(t) // a separate thread
	must(t, syscall.Unshare(syscall.CLONE_NEWNS))
	must(t, syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	must(t, syscall.Mount("test", "/run", "tmpfs", 0, ""))
	must(t, os.MkdirAll(Dir, 0o755))
	must(t, os.WriteFile(filepath.Join(Dir, "web"), nil, 0o600))
	must(t, os.Mkdir("/run/here", 0o755))
	t.Chdir("/run/here")
	must(t, os.WriteFile("file", nil, 0o600))
	must(t, os.Mkdir("directory", 0o755))
	wd, err := os.Getwd()
	must(t, err)
	for name, want := range map[string]string{
		"web":              "/run/netns/web",
		"absent":           "/run/netns/absent",
		"file":             filepath.Join(wd, "file"), // it exists here, and no namespace has the name
		"directory":        "/run/netns/directory",    // its namespace is gone
		"./web":            filepath.Join(wd, "web"),
		"/proc/1/ns/net":   "/proc/1/ns/net",
		"/run/../tmp/x/./": "/tmp/x",
	} {
		if got, err := Resolve(name); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
}

// TestExistsWithoutFreeFiles checks that a namespace counts as existing if this process cannot open it.
func TestExistsWithoutFreeFiles(t *testing.T) {
	const own = "/proc/self/ns/net"
	if !Exists(own) || Exists("/nowhere") || Exists("/dev/null") || Exists("") {
		t.Error("the own namespace is one, /nowhere and /dev/null are none")
	}
	var files syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: files.Max}))
	exists := Exists(own)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
	if !exists {
		t.Error("without a free file descriptor, the own namespace counts as gone")
	}
}
