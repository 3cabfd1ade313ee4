//go:build unix

package skel

import (
	"io"
	"os"
	"syscall"
)

// stdout is standard output under another number: a Go program is killed when
// it writes to a closed pipe by the numbers 1 and 2, but here the write has to
// fail, so that the ADD can be undone.
func stdout() io.Writer {
	fd, err := syscall.Dup(1)
	if err != nil {
		return os.Stdout
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "/dev/stdout")
}
