package scenario

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// tapARPMain is the program that uses a tap. It sends an ARP request (RFC 826) for an address and prints the hardware
// address from the reply.
func tapARPMain() {
	name, ip := os.Args[1], netip.MustParseAddr(os.Args[2]).As4()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK, 0)
	fail(err)
	req, err := unix.NewIfreq(name)
	fail(err)
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if len(os.Args) > 3 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	req.SetUint16(flags)
	fail(unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
	request, err := hex.DecodeString("ffffffffffff" + "020000000099" + "0806" + "0001080006040001" + "020000000099" + "0a0700fe" + "000000000000" + hex.EncodeToString(ip[:]))
	fail(err)
	tap := os.NewFile(uintptr(fd), name)
	for end := time.Now().Add(answerTimeout()); ; { // a bridge port starts to forward some time after the tap is opened
		_, err = tap.Write(request)
		fail(err)
		if mac := readARPReply(tap, ip); mac != "" {
			fmt.Println(os.Args[2], "is at", mac)
			return
		}
		if time.Now().After(end) {
			fail(fmt.Errorf("no ARP reply for %s", os.Args[2]))
		}
	}
}

// readARPReply reads frames for a moment and returns the hardware address from the ARP reply for an address, or "".
func readARPReply(tap *os.File, ip [4]byte) string {
	fail(tap.SetReadDeadline(time.Now().Add(kerneltest.Slow(100 * time.Millisecond))))
	for b := make([]byte, 2048); ; {
		n, err := tap.Read(b)
		if err != nil {
			return ""
		}
		if n >= 42 && b[12] == 8 && b[13] == 6 && b[21] == 2 && [4]byte(b[28:32]) == ip {
			return hex.EncodeToString(b[22:28])
		}
	}
}
