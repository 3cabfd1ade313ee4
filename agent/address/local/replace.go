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
	return replaceFile(path, raw, mode, (*os.File).Sync)
}

// ReplaceWithoutSync is Replace for a file that only matters until the next boot. It does not wait for the disk, so a
// power failure can leave an empty file.
func ReplaceWithoutSync(path string, raw []byte, mode os.FileMode) error {
	return replaceFile(path, raw, mode, func(*os.File) error { return nil })
}

func replaceFile(path string, raw []byte, mode os.FileMode, sync func(*os.File) error) error {
	err := replace(path, raw, mode, sync)
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return &os.PathError{Op: "replace", Path: path, Err: no}
	}
	return err
}

func replace(path string, raw []byte, mode os.FileMode, sync func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), Unfinished+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Chmod(mode), sync(f), f.Close())
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
