//go:build linux

package plainfile

import (
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Arguments of linkat(2).
const (
	atFDCWD         = -100
	atSymlinkFollow = 0x400
)

// Link gives an open file another name. A file that was deleted gets none: the error is os.ErrNotExist, also if its former
// name is another file's. The error names the file by its former name.
func Link(fd int, name, to string) error {
	own, err := syscall.BytePtrFromString("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	path, err := syscall.BytePtrFromString(to)
	if err != nil {
		return err
	}
	here := atFDCWD
	_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(here), uintptr(unsafe.Pointer(own)), uintptr(here), uintptr(unsafe.Pointer(path)), atSymlinkFollow, 0)
	if errno != 0 {
		return &os.LinkError{Op: "link", Old: name, New: to, Err: errno}
	}
	return nil
}
