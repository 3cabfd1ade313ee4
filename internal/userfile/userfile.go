// Package userfile writes files that a user named.
package userfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes a file atomically and keeps its mode and owner. Runtimes and collectors of metrics ignore the name of the
// temporary file. Replace writes to a device or a pipe, such as /dev/stdout, and does not put a file in its place.
func Replace(file string, data []byte) error {
	old, err := os.Stat(file)
	if err == nil && !old.Mode().IsRegular() {
		return writeTo(file, data)
	}
	mode, uid, gid := os.FileMode(0o644), -1, -1 // -1: unchanged
	if err == nil {
		mode = old.Mode().Perm()
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(st.Uid), int(st.Gid)
		}
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		target = file // it does not exist yet
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".fairlead-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, withoutPath(err))
	}
	defer os.Remove(tmp.Name()) // fails after the rename, which is fine
	_ = tmp.Chown(uid, gid)     // only root may give a file away
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, withoutPath(err))
	}
	return nil
}

// writeTo writes to something that is no regular file.
func writeTo(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, withoutPath(err))
	}
	return nil
}

// withoutPath returns the error of the kernel, without the name of a temporary file.
func withoutPath(err error) error {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no
	}
	return err
}
