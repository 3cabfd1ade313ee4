//go:build linux

// Package bootid tells one boot of the host from another.
package bootid

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/plainfile"
)

const path = "/proc/sys/kernel/random/boot_id" // random(4)

var known struct {
	sync.Mutex
	id string
}

// Read returns the kernel's ID of this boot. A process reads it once. Its error is never os.ErrNotExist: without /proc no
// record is valid, which differs from a record that does not exist.
func Read() (string, error) {
	known.Lock()
	defer known.Unlock()
	if known.id != "" {
		return known.id, nil
	}
	raw, err := plainfile.Read(path)
	id := strings.TrimSpace(string(raw))
	if err == nil && id == "" {
		err = errors.New(path + " is empty")
	}
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %v; it needs /proc: mount -t proc proc /proc", err)
	}
	known.id = id
	return id, nil
}
