package store

import (
	"maps"
	"slices"
	"strings"
)

// full returns the key or prefix in etcd.
func (e *etcd) full(key string) string {
	for at, prefix := range e.Mounts {
		if rest, ok := strings.CutPrefix(key, at); ok {
			return prefix + rest
		}
	}
	return e.Prefix + key
}

// short returns the store's key for a key in etcd.
func (e *etcd) short(full string) string {
	for at, prefix := range e.Mounts {
		if rest, ok := strings.CutPrefix(full, prefix); ok {
			return at + rest
		}
	}
	return strings.TrimPrefix(full, e.Prefix)
}

// ranges returns the etcd prefixes that hold the keys below a prefix.
func (e *etcd) ranges(prefix string) []string {
	list := []string{e.full(prefix)}
	if prefix == "" {
		for _, at := range slices.Sorted(maps.Keys(e.Mounts)) {
			list = append(list, e.Mounts[at])
		}
	}
	return list
}
