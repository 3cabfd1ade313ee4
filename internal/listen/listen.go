// Package listen returns the unix socket that a daemon serves: the one that systemd passed to it, or a new one.
package listen

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// firstInherited is the first file descriptor that systemd passes, sd_listen_fds(3).
const firstInherited = 3

// Unix returns the socket that systemd passed to this process, or else a new one at a path. It replaces a stale socket.
// what names the daemon in errors.
func Unix(path, what string, getenv func(string) string) (net.Listener, error) {
	n, err := inherited(getenv)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return create(path, what)
	case n > 1:
		return nil, fmt.Errorf("systemd passed %d sockets: want one", n)
	}
	f := os.NewFile(firstInherited, "the socket passed by systemd")
	defer f.Close()
	return net.FileListener(f)
}

// inherited returns how many sockets systemd passed to this process.
func inherited(getenv func(string) string) (int, error) {
	fds, pid := getenv("LISTEN_FDS"), getenv("LISTEN_PID")
	if fds == "" || pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	n, err := strconv.Atoi(fds)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("LISTEN_FDS=%s: want the number of sockets", fds)
	}
	return n, nil
}

// create creates the daemon's socket and replaces a stale one. It leaves a file that is not a socket.
func create(path, what string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the socket's directory: %w", err)
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("another %s answers at %s: stop it first", what, path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}
