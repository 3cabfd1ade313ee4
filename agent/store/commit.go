package store

import (
	"fmt"
	"strings"
)

// MaxOps is how many changes a transaction has at most: etcd's own bound.
const MaxOps = 128

// maxKey is how long a key may be, in bytes.
const maxKey = 1024

// ConflictError names the keys that are not at the revisions at which a
// transaction wanted them.
type ConflictError struct{ Keys []string }

func (e *ConflictError) Error() string {
	return strings.Join(e.Keys, ", ") + ": " + ErrConflict.Error()
}

// Is makes it an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// checkOps refuses a transaction that no store can make.
func checkOps(ops []Op) error {
	if len(ops) == 0 || len(ops) > MaxOps {
		return fmt.Errorf("a transaction of %d changes: want 1 to %d", len(ops), MaxOps)
	}
	seen := map[string]bool{}
	for _, o := range ops {
		if err := checkKey(o.Key); err != nil {
			return err
		}
		if seen[o.Key] {
			return fmt.Errorf("a transaction changes %s twice: want each key once", o.Key)
		}
		seen[o.Key] = true
	}
	return nil
}

// ValidKey tells whether a store takes a key: others may have been written to etcd by
// hand, and are told by lists and watches.
func ValidKey(key string) bool { return checkKey(key) == nil }

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || key[0] == '/' || key[len(key)-1] == '/' || strings.ContainsRune(key, 0) {
		return fmt.Errorf(`key %q: want a path like "nodes/a", of at most %d bytes`, key, maxKey)
	}
	return nil
}
