package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// errNoAnswer is the error if no server answered in time.
var errNoAnswer = errors.New("no answer") // constant, never assigned

// errGone is the error if the namespace or interface does not exist any more.
var errGone = errors.New("the interface is gone") // constant, never assigned

// refusal is the error if a server rejects an address that this client has or requested.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// link is a container's interface, opened for one exchange. Nothing stays open between exchanges, so the namespace can
// end.
type link struct {
	ns    *netns.Handle
	name  string
	index int
	mtu   int // bytes
	mac   net.HardwareAddr
	up    bool

	raised bool // was down until now: a bridge port, for example, may drop packets for some seconds
}

// openLink opens an interface in the namespace at a path. If the path now leads to a namespace with another ID, the
// error is errGone. The zero ID stands for any namespace.
func openLink(path string, id netns.ID, ifname string) (*link, error) {
	ns, err := netns.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return nil, err
	}
	l := &link{ns: ns, name: ifname}
	have, err := ns.ID()
	if err == nil && id.File != "" && !have.Same(id) {
		err = fmt.Errorf("%w: %s is now another namespace", errGone, path)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	if err := l.read(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// maxMessage returns the size of the largest packet that a server should send: the raw socket receives no fragments. RFC
// 2132, section 9.10, does not allow less than 576.
func (l *link) maxMessage() uint16 { return uint16(max(576, min(l.mtu, 1500))) }

func (l *link) close() { l.ns.Close() }

func (l *link) read() error {
	return l.engine(func(e *kernel.Engine) error {
		info, err := e.Link(kernel.Container, l.name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: no %s in %s", errGone, l.name, l.ns.Path())
		}
		if err != nil {
			return err
		}
		mac, err := hwaddr.Parse(info.MAC)
		if err != nil {
			return fmt.Errorf("%s in %s cannot use DHCP: %w", l.name, l.ns.Path(), err)
		}
		l.index, l.mtu, l.mac, l.up = info.Index, info.MTU, mac, info.Up
		return nil
	})
}

func (l *link) engine(f func(*kernel.Engine) error) error {
	e, err := kernel.Open(l.ns, kernel.Options{})
	if err != nil {
		return err
	}
	defer e.Close()
	return f(e)
}

// prepare brings the interface up. For IPv6 it enables IPv6 on it and turns off the kernel's processing of router
// advertisements, because this daemon does it. Then it sets the link-local address without duplicate address detection.
func (l *link) prepare(v6 bool) error {
	return l.engine(func(e *kernel.Engine) error {
		var list kernel.Objects
		if v6 {
			for _, kv := range [][2]string{{"disable_ipv6", "0"}, {"accept_ra", "0"}} {
				list = append(list, &kernel.Sysctl{In: kernel.Container, Key: "net/ipv6/conf/" + l.name + "/" + kv[0], Value: kv[1], Link: l.name, Optional: true})
			}
		}
		if !l.up {
			list = append(list, &kernel.Up{In: kernel.Container, Link: l.name})
		}
		err := e.Apply(list)
		l.up = l.up || err == nil
		if err != nil || !v6 {
			return err
		}
		own := kernel.Objects{&kernel.Addr{In: kernel.Container, Link: l.name, Prefix: netip.PrefixFrom(l.local(), 64)}}
		// The kernel adds its own address when the link gets a carrier, which may be at any moment.
		for tries := 1; ; tries++ {
			err := e.Apply(own)
			if tries > 5 || !errors.Is(err, os.ErrExist) {
				return err
			}
			_ = e.Remove(own) // its duplicate address detection takes a second
		}
	})
}

// local returns the link-local address: RFC 4291, appendix A.
func (l *link) local() netip.Addr {
	return withMAC(netip.MustParsePrefix("fe80::/64"), l.mac)
}

// withMAC returns the address in a /64 that is derived from a MAC address.
func withMAC(p netip.Prefix, mac net.HardwareAddr) netip.Addr {
	a := p.Masked().Addr().As16()
	copy(a[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(a)
}

// sleep waits, and reports whether the time passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
