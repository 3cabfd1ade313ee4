package reconcile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
)

// Monitor hears what changes in a namespace: links, addresses, routes, rules,
// neighbours, forwarding and nftables, whoever changes them.
type Monitor struct {
	files []*os.File
}

// Event is one such change, as the kernel told it.
type Event struct {
	typ    uint16
	body   []byte
	port   uint32 // of the socket that asked for it; 0: unknown
	nft    bool
	missed bool // some were not heard
}

// NewMonitor listens in the calling thread's namespace.
func NewMonitor() (*Monitor, error) {
	m := &Monitor{}
	groups := map[int][]int{
		unix.NETLINK_ROUTE: {unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
		unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
	}
	for family, list := range groups {
		f, err := listen(family, list)
		if err != nil {
			m.Close()
			return nil, err
		}
		m.files = append(m.files, f)
	}
	return m, nil
}

func listen(family int, groups []int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // else what others do in bursts is lost, and listed
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, g := range groups {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g))
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("listen to netlink: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// Close ends Run.
func (m *Monitor) Close() {
	for _, f := range m.files {
		_ = f.Close()
	}
}

// Run calls f for every change until the context ends.
func (m *Monitor) Run(ctx context.Context, f func([]Event)) error {
	stop := context.AfterFunc(ctx, m.Close)
	defer stop()
	type heard struct {
		events []Event
		err    error
	}
	ch := make(chan heard)
	for _, file := range m.files {
		go func() {
			buf := make([]byte, 64<<10)
			for {
				events, err := receive(file, buf)
				select {
				case ch <- heard{events, err}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case h := <-ch:
			if h.err != nil {
				return h.err
			}
			f(h.events)
		}
	}
}

func receive(file *os.File, buf []byte) (out []Event, _ error) {
	c, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	n, got := 0, error(nil)
	err = c.Read(func(fd uintptr) bool {
		n, _, got = unix.Recvfrom(int(fd), buf, 0)
		return got != unix.EAGAIN
	})
	if errors.Is(got, unix.ENOBUFS) {
		return []Event{{missed: true}}, nil
	}
	if errors.Is(got, unix.EINTR) {
		return nil, nil
	}
	if err = errors.Join(err, got); err != nil {
		return nil, fmt.Errorf("receive from netlink: %w", err)
	}
	return parseEvents(buf[:n]), nil
}

func parseEvents(p []byte) (out []Event) {
	for len(p) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(p))
		if size < unix.NLMSG_HDRLEN || size > len(p) {
			break
		}
		typ := binary.NativeEndian.Uint16(p[4:])
		out = append(out, Event{typ: typ, port: binary.NativeEndian.Uint32(p[12:]), nft: typ>>8 == unix.NFNL_SUBSYS_NFTABLES, body: append([]byte(nil), p[unix.NLMSG_HDRLEN:size]...)})
		p = p[min((size+3)&^3, len(p)):]
	}
	return out
}

// Link is the link that a change is of, and whether it is gone; false for other changes.
func (ev Event) Link() (l *kernel.LinkInfo, gone, ok bool) {
	if ev.nft || ev.missed || ev.typ != unix.RTM_NEWLINK && ev.typ != unix.RTM_DELLINK || len(ev.body) < unix.SizeofIfInfomsg || ev.body[0] != unix.AF_UNSPEC {
		return nil, false, false
	}
	return kernel.ParseLink(ev.body), ev.typ == unix.RTM_DELLINK, true
}
