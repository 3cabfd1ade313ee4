package main

import (
	"fmt"
	"io"
	"strings"
)

// archive writes an initial RAM file system in the "newc" format (the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w   io.Writer
	ino int
	err error
}

// These are the file types and permissions of an entry, octal as in inode(7).
const (
	cpioDir  = 0o040755
	cpioFile = 0o100755
)

func (a *archive) dir(name string)               { a.entry(name, cpioDir, nil) }
func (a *archive) file(name string, data []byte) { a.entry(name, cpioFile, data) }

// close ends the archive and returns the first write error.
func (a *archive) close() error {
	a.ino = -1
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) entry(name string, mode int, data []byte) {
	a.ino++
	fields := []int{
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0,
	}
	var head strings.Builder
	head.WriteString("070701")
	for _, f := range fields {
		fmt.Fprintf(&head, "%08x", f)
	}
	head.WriteString(name + "\x00")
	a.write([]byte(head.String()))
	a.write(data)
}

// write pads to four bytes, as the header and the data require.
func (a *archive) write(p []byte) {
	for _, part := range [][]byte{p, make([]byte, -len(p)&3)} {
		if a.err == nil {
			_, a.err = a.w.Write(part)
		}
	}
}
