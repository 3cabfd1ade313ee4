package reconcile

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Monitor receives events about links, addresses, routes, rules, neighbours, forwarding entries, forwarding settings
// and nftables of a namespace, whoever causes them.
type Monitor struct {
	streams []*netlink.Stream
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

const monitorBuffer = 8 << 20 // bytes; a burst that does not fit costs a resync

func openMonitor(groups map[int][]int) (*Monitor, error) {
	m := &Monitor{}
	for family, list := range groups {
		c, err := netlink.Dial(family, nil)
		var s *netlink.Stream
		if err == nil {
			s, err = c.Stream(monitorBuffer, list...)
		}
		if err != nil {
			m.Close()
			return nil, err
		}
		m.streams = append(m.streams, s)
	}
	return m, nil
}

// Close closes the sockets and ends Run.
func (m *Monitor) Close() {
	for _, s := range m.streams {
		s.Close()
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
	for _, stream := range m.streams {
		go func() {
			for {
				events, err := receive(stream)
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

func receive(s *netlink.Stream) (out []Event, _ error) {
	list, err := s.Receive()
	if errors.Is(err, netlink.ErrMissed) {
		return []Event{{missed: true}}, nil
	}
	for _, m := range list {
		out = append(out, Event{typ: m.Type, port: m.Port, nft: m.Type>>8 == unix.NFNL_SUBSYS_NFTABLES, body: m.Body})
	}
	return out, err
}

// Missed reports whether events are missing: the socket's buffer was full.
func (ev Event) Missed() bool { return ev.missed }

// ChangesTable reports whether an event is about an nftables table and somebody else than a socket with a port ID caused
// it. It is true also if events are missing.
func (ev Event) ChangesTable(name string, own uint32) bool {
	return ev.missed || ev.port != own && ev.ofTable(name)
}

// RemovesTable reports whether an event says that an nftables table is gone. It is true also if events are missing.
func (ev Event) RemovesTable(name string) bool {
	return ev.missed || ev.typ&0xff == unix.NFT_MSG_DELTABLE && ev.ofTable(name)
}

// Link returns the link that an event is about, and whether the link is gone. ok is false for other events.
func (ev Event) Link() (l *kernel.LinkInfo, gone, ok bool) {
	if ev.nft || ev.missed || ev.typ != unix.RTM_NEWLINK && ev.typ != unix.RTM_DELLINK || len(ev.body) < unix.SizeofIfInfomsg || ev.body[0] != unix.AF_UNSPEC {
		return nil, false, false
	}
	return kernel.ParseLink(ev.body), ev.typ == unix.RTM_DELLINK, true
}

// ChangesDefaultRoute reports whether an event is about a default route of the main table.
func (ev Event) ChangesDefaultRoute() bool {
	if ev.nft || ev.missed || ev.typ != unix.RTM_NEWROUTE && ev.typ != unix.RTM_DELROUTE || len(ev.body) < unix.SizeofRtMsg {
		return false
	}
	prefixLength := ev.body[1]
	return prefixLength == 0 && kernel.ParseRoute(ev.body).Table == kernel.MainTable
}
