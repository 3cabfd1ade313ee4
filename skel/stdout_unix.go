//go:build unix

package skel

import (
	"io"
	"os"
	"syscall"
)

// stdout duplicates standard output under another number. A Go program is killed when it writes to a closed pipe on
// descriptor 1 or 2, but here the write must fail, so that the ADD can be undone.
func stdout() io.Writer {
	fd, err := syscall.Dup(1)
	if err != nil {
		return os.Stdout
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "/dev/stdout")
}

// stderr writes to standard error by a system call, for the same reason: if the runtime has ended, both pipes are closed,
// and the message about the result comes before the undo.
func stderr() io.Writer { return rawStderr{} }

type rawStderr struct{}

func (rawStderr) Write(p []byte) (int, error) {
	n, err := syscall.Write(2, p)
	return max(n, 0), err
}
