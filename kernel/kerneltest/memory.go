package kerneltest

import (
	"os"
	"testing"
)

// MemoryDir returns a directory in memory, for servers that sync their files. With a busy disk, they answer late: dnsmasq,
// which writes all its leases after each change, answers a hundred clients only after many seconds.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fairlead-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
