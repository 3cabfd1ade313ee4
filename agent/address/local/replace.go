package local

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Unfinished is the beginning of the name of a new file before it replaces the old one. The old one's name follows, a
// "-" and a number. A process that dies leaves it.
const Unfinished = ".new-"

// Replace atomically replaces a file's content. The text of the error is the same each time: it lacks the new file's
// name, and the agent logs a text once.
func Replace(path string, raw []byte, mode os.FileMode) error {
	err := replace(path, raw, mode)
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return &os.PathError{Op: "replace", Path: path, Err: no}
	}
	return err
}

func replace(path string, raw []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), Unfinished+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// RemoveUnfinished removes the new files that killed processes left in a directory, and those that other processes are
// writing.
func RemoveUnfinished(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, Unfinished+"*")) // an unreadable directory has its error elsewhere
	for _, file := range files {
		_ = os.Remove(file)
	}
}
