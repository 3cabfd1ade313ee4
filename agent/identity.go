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
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/internal/filelock"
	"github.com/fairlead/fairlead/internal/plainfile"
)

// machineID returns this machine's ID, which is created once and stored in dir. It distinguishes two machines with the
// same node name.
func machineID(dir string) (string, error) {
	return storedID(filepath.Join(dir, "id"), "the machine ID")
}

// instanceID returns an ID of this boot and directory of runtime state. It distinguishes this machine from one that
// started with a copy of its disk.
func instanceID(run string) (string, error) {
	boot, err := bootid.Read()
	if err != nil {
		return "", err
	}
	id, err := storedID(filepath.Join(run, "agent-instance"), "the agent's instance")
	return boot + " " + id, err
}

// storedID returns the ID in a file, which it creates if missing. A damaged ID counts as missing: JSON in the store would
// not return it unchanged, so the agent would take its own blocks for another machine's.
func storedID(file, what string) (string, error) {
	raw, err := plainfile.Read(file)
	if id := strings.TrimSpace(string(raw)); err == nil && id != "" && !strings.ContainsFunc(id, isUnprintable) {
		return id, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	id := strings.ToLower(rand.Text())
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	if err := local.Replace(file, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", what, err)
	}
	return id, nil
}

func isUnprintable(r rune) bool { return r <= ' ' || r > '~' }

// lockHost ensures that only one agent runs on this host.
func lockHost(run string) (unlock func(), err error) {
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
		return nil, fmt.Errorf("another agent runs on this host (%s is locked): stop it first, or run each agent in its own network namespace, with its own FAIRLEAD_RUN and FAIRLEAD_LIB", path)
	}
	return func() { _ = filelock.Close(f) }, nil
}
