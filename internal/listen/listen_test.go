package listen_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/internal/listen"
)

// TestReplacedSocket checks that a daemon replaces a stale socket, and neither another daemon's socket nor another file.
func TestReplacedSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "d.sock")
	start := func() (net.Listener, error) {
		return listen.Unix(path, "test daemon", func(string) string { return "" })
	}
	l, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(); err == nil || !strings.Contains(err.Error(), "another test daemon answers") {
		t.Errorf("a second daemon: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if it was killed
	l.Close()
	if l, err = start(); err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("valuable"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := start(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a file: %v", err)
	}
	if raw, err := os.ReadFile(path); err != nil || string(raw) != "valuable" {
		t.Errorf("the file: %q, %v", raw, err)
	}
}
