package store

import (
	"fmt"
	"strings"
)

// MaxOps is the maximum number of changes in a transaction. etcd allows maxChecked operations; the others can be checks.
const (
	MaxOps     = 120
	maxChecked = 128
)

// maxKey is the maximum length of a key in bytes.
const maxKey = 1024

// ConflictError names the keys that were not at the expected revisions.
type ConflictError struct{ Keys []string }

func (e *ConflictError) Error() string {
	return strings.Join(e.Keys, ", ") + ": " + ErrConflict.Error()
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// CheckOps returns an error for a transaction that no store supports.
func CheckOps(ops []Op) error {
	changes := 0
	for _, o := range ops {
		if !o.isCheck() {
			changes++
		}
	}
	if len(ops) == 0 || changes > MaxOps || len(ops) > maxChecked {
		return fmt.Errorf("a transaction of %d changes and %d checks: want at least 1, at most %d changes, and at most %d of both", changes, len(ops)-changes, MaxOps, maxChecked)
	}
	seen := map[string]bool{}
	for _, o := range ops {
		key := o.Key
		if o.Below {
			key = strings.TrimSuffix(key, "/")
		}
		if err := checkKey(key); err != nil {
			return err
		}
		if seen[o.Key] {
			return fmt.Errorf("a transaction changes %s twice: want each key once", o.Key)
		}
		seen[o.Key] = true
	}
	return nil
}

// ValidKey reports whether a store accepts a key. Lists and watches may return other keys that an administrator wrote
// to etcd.
func ValidKey(key string) bool { return checkKey(key) == nil }

func checkKey(key string) error {
	if key == "" || len(key) > maxKey || key[0] == '/' || key[len(key)-1] == '/' || strings.ContainsRune(key, 0) {
		return fmt.Errorf(`key %q: want a path like "nodes/a", of at most %d bytes`, key, maxKey)
	}
	return nil
}
