package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/agent/address/local"
)

// machineID is this machine's: made once, kept on its disk. By it a node is told
// from another that was given the same name.
func machineID(dir string) (string, error) {
	file := filepath.Join(dir, "id")
	raw, err := os.ReadFile(file)
	if id := strings.TrimSpace(string(raw)); err == nil && id != "" {
		return id, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read this machine's ID: %w", err)
	}
	id := strings.ToLower(rand.Text())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := local.Replace(file, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep this machine's ID: %w", err)
	}
	return id, nil
}

// alone makes sure that no other agent works on this host.
func alone(run string) (unlock func(), err error) {
	if err := os.MkdirAll(run, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(run, "agent.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another agent works on this host (%s is locked): end it first, or give each its own FAIRLEAD_RUN", path)
	}
	return func() { f.Close() }, nil
}
