package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/kernel/netns"
)

// errSilent is the error if no ping was answered in time.
var errSilent = errors.New("no answer")

// ping sends echo requests from a namespace, one each millisecond, and returns
// when the first answer is there. Source: RFC 792.
func ping(nsPath string, to netip.Addr, within time.Duration) error {
	ns, err := netns.Open(nsPath)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		const between = time.Millisecond
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.IPPROTO_ICMP)
		if err != nil {
			return fmt.Errorf("open a socket for ICMP: %w", err)
		}
		defer syscall.Close(fd)
		wait := syscall.NsecToTimeval(int64(between))
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait); err != nil {
			return err
		}
		id := uint16(os.Getpid())
		for end := time.Now().Add(within); time.Now().Before(end); {
			// A failed send counts as a missing answer.
			if err := syscall.Sendto(fd, echo(id), 0, &syscall.SockaddrInet4{Addr: to.As4()}); err != nil {
				time.Sleep(between)
				continue
			}
			if answered(fd, to, id) {
				return nil
			}
		}
		return fmt.Errorf("ping %s from %s for %s: %w", to, nsPath, within, errSilent)
	})
}

// echo returns an echo request with its checksum, RFC 1071.
func echo(id uint16) []byte {
	b := []byte{8, 0, 0, 0, 0, 0, 0, 1}
	binary.BigEndian.PutUint16(b[4:], id)
	sum := 0x0800 + uint32(id) + 1
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum>>16+sum&0xffff))
	return b
}

// answered reads packets until the answer arrives or the time is over.
func answered(fd int, from netip.Addr, id uint16) bool {
	b := make([]byte, 1500)
	for {
		n, _, err := syscall.Recvfrom(fd, b, 0)
		if err != nil {
			return false
		}
		const header = 20 // IPv4 without options
		if n >= header+8 && b[header] == 0 && netip.AddrFrom4([4]byte(b[12:16])) == from && binary.BigEndian.Uint16(b[header+4:]) == id {
			return true
		}
	}
}
