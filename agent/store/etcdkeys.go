package store

import (
	"maps"
	"slices"
	"strings"
)

// full is a key, or what keys begin with, as etcd has it.
func (e *etcd) full(key string) string {
	for at, prefix := range e.Mounts {
		if rest, ok := strings.CutPrefix(key, at); ok {
			return prefix + rest
		}
	}
	return e.Prefix + key
}

// short is the key of one of etcd's.
func (e *etcd) short(full string) string {
	for at, prefix := range e.Mounts {
		if rest, ok := strings.CutPrefix(full, prefix); ok {
			return at + rest
		}
	}
	return strings.TrimPrefix(full, e.Prefix)
}

// ranges are the prefixes in etcd of all keys below one of the store's.
func (e *etcd) ranges(prefix string) []string {
	list := []string{e.full(prefix)}
	if prefix == "" {
		for _, at := range slices.Sorted(maps.Keys(e.Mounts)) {
			list = append(list, e.Mounts[at])
		}
	}
	return list
}
