package reconcile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Monitor receives events about links, addresses, routes, rules, neighbours, forwarding entries, forwarding settings
// and nftables of a namespace, whoever causes them.
type Monitor struct {
	files []*os.File
}

// Event is one change, as the kernel reported it.
type Event struct {
	typ    uint16
	body   []byte
	port   uint32 // port ID of the socket that requested the change; 0: unknown
	nft    bool
	missed bool // the socket's buffer overflowed, so events are missing
}

// NewMonitor opens a monitor for the namespace of the calling thread.
func NewMonitor() (*Monitor, error) {
	return openMonitor(map[int][]int{
		unix.NETLINK_ROUTE: {unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
		unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
	})
}

// NewTableMonitor opens a monitor of nftables only.
func NewTableMonitor() (*Monitor, error) {
	return openMonitor(map[int][]int{unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES}})
}

func openMonitor(groups map[int][]int) (*Monitor, error) {
	m := &Monitor{}
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
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // a burst that does not fit is lost and costs a resync
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

// Close closes the sockets and ends Run.
func (m *Monitor) Close() {
	for _, f := range m.files {
		_ = f.Close()
	}
}

// Run calls f with every batch of events until the context ends.
func (m *Monitor) Run(ctx context.Context, f func([]Event)) error {
	stop := context.AfterFunc(ctx, m.Close)
	defer stop()
	type received struct {
		events []Event
		err    error
	}
	ch := make(chan received)
	for _, file := range m.files {
		go func() {
			buf := make([]byte, 64<<10)
			for {
				events, err := receive(file, buf)
				select {
				case ch <- received{events, err}:
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
	var from unix.Sockaddr
	n, got := 0, error(nil)
	err = c.Read(func(fd uintptr) bool {
		n, from, got = unix.Recvfrom(int(fd), buf, 0)
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
	if !netlink.FromKernel(from) {
		return nil, nil
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

// ChangesTable reports whether an event is about an nftables table and somebody else than a socket with a port ID caused
// it. It is true also if events are missing.
func (ev Event) ChangesTable(name string, own uint32) bool {
	return ev.missed || ev.port != own && ev.ofTable(name)
}

// Link returns the link that an event is about, and whether the link is gone. ok is false for other events.
func (ev Event) Link() (l *kernel.LinkInfo, gone, ok bool) {
	if ev.nft || ev.missed || ev.typ != unix.RTM_NEWLINK && ev.typ != unix.RTM_DELLINK || len(ev.body) < unix.SizeofIfInfomsg || ev.body[0] != unix.AF_UNSPEC {
		return nil, false, false
	}
	return kernel.ParseLink(ev.body), ev.typ == unix.RTM_DELLINK, true
}
