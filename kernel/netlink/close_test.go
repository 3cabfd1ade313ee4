package netlink

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCloseTwice checks that a second Close does not close the file that has the descriptor since the first one.
func TestCloseTwice(t *testing.T) {
	c, err := Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Fatal(err)
	}
	fd := c.FD()
	c.Close()
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Dup3(int(f.Fd()), fd, unix.O_CLOEXEC); err != nil && int(f.Fd()) != fd {
		t.Fatal(err)
	}
	c.Close()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		t.Errorf("the second Close closed another file: %v", err)
	}
	if int(f.Fd()) != fd {
		_ = unix.Close(fd)
	}
}
