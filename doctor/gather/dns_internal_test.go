package gather

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestContainersResolvConf reads files that a container may put in the place of its resolv.conf. A FIFO would block
// forever, and a link would lead to a file of the host.
func TestContainersResolvConf(t *testing.T) {
	t.Parallel()
	host := filepath.Join(t.TempDir(), "resolv.conf")
	put := func(file string) error { return os.WriteFile(file, []byte("search a\nnameserver 192.0.2.53\n"), 0o600) }
	if err := put(host); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(file string) error
		want string
	}{
		"a file":         {put, "[192.0.2.53]"},
		"a FIFO":         {func(file string) error { return syscall.Mkfifo(file, 0o600) }, "[]"},
		"a link out":     {func(file string) error { return os.Symlink(host, file) }, "[]"},
		"a link up":      {func(file string) error { return os.Symlink("../../../../../../../.."+host, file) }, "[]"},
		"a directory":    {func(file string) error { return os.Mkdir(file, 0o700) }, "[]"},
		"a link not out": {func(file string) error { return os.Symlink("other", file) }, "[192.0.2.53]"},
		"nothing at all": {func(string) error { return nil }, "[]"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "etc")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(dir, "other")); err != nil {
			t.Fatal(err)
		}
		if err := c.make(filepath.Join(dir, "resolv.conf")); err != nil {
			t.Fatal(err)
		}
		list, err := readInContainer(root, "etc/resolv.conf")
		if got := fmt.Sprint(list); got != c.want || (err == nil) != (c.want != "[]") {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

// TestHostNameserversForContainers checks that an address of the host alone is not recommended to containers: a loopback
// address, or an address on a link of the host.
func TestHostNameserversForContainers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver fe80::1%eth0\nnameserver 127.0.0.53\nnameserver 192.0.2.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(hostNameservers("missing", file)); got != "[192.0.2.53]" {
		t.Errorf("got %s", got)
	}
}
