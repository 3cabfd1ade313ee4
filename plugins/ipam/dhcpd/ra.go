package dhcpd

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/rfc1035label"
)

// advertisement is a router advertisement. Source: RFC 4861, 4.2.
type advertisement struct {
	lifetime uint32 // seconds as a default router; 0: not a default router
	prefixes []prefixInfo
	routes   []routeInfo
	dns      []netip.Addr
	search   []string
}

type prefixInfo struct {
	prefix           netip.Prefix
	onLink, auto     bool
	valid, preferred uint32 // seconds
}

// routeInfo is a more specific route, RFC 4191.
type routeInfo struct {
	prefix   netip.Prefix
	lifetime uint32 // seconds
}

// These are the types of messages, and of options in a router advertisement.
const (
	routerSolicitation  = 133
	routerAdvertisement = 134

	optSourceLinkAddress = 1
	optPrefixInfo        = 3
	optRouteInfo         = 24
	optRDNSS             = 25
	optDNSSL             = 31
)

var errNoAdvertisement = errors.New("not a router advertisement") // constant, never assigned

// parseAdvertisement parses an ICMPv6 message, starting at its type.
func parseAdvertisement(b []byte) (*advertisement, error) {
	if len(b) < 16 || b[0] != routerAdvertisement || b[1] != 0 {
		return nil, errNoAdvertisement
	}
	a := &advertisement{lifetime: uint32(binary.BigEndian.Uint16(b[6:]))}
	for b = b[16:]; len(b) > 0; {
		if len(b) < 8 || b[1] == 0 || len(b) < int(b[1])*8 {
			return nil, errNoAdvertisement // RFC 4861, 4.6: ignore the whole message
		}
		n := int(b[1]) * 8
		a.option(b[0], b[:n])
		b = b[n:]
	}
	return a, nil
}

// option parses one option, including its type and length.
func (a *advertisement) option(typ byte, b []byte) {
	switch {
	case typ == optPrefixInfo && len(b) == 32 && b[2] <= 128:
		p := prefixInfo{
			prefix: netip.PrefixFrom(netip.AddrFrom16([16]byte(b[16:])), int(b[2])).Masked(),
			onLink: b[3]&0x80 != 0, auto: b[3]&0x40 != 0,
			valid: binary.BigEndian.Uint32(b[4:]), preferred: binary.BigEndian.Uint32(b[8:]),
		}
		if p.preferred <= p.valid && isUnicast(p.prefix.Addr()) {
			a.prefixes = append(a.prefixes, p)
		}
	case typ == optRouteInfo && b[2] <= 128 && (len(b)-8)*8 >= int(b[2]):
		var dst [16]byte
		copy(dst[:], b[8:])
		a.routes = append(a.routes, routeInfo{netip.PrefixFrom(netip.AddrFrom16(dst), int(b[2])).Masked(), binary.BigEndian.Uint32(b[4:])})
	case typ == optRDNSS && binary.BigEndian.Uint32(b[4:]) > 0:
		for s := b[8:]; len(s) >= 16; s = s[16:] {
			a.dns = append(a.dns, netip.AddrFrom16([16]byte(s)))
		}
	case typ == optDNSSL && binary.BigEndian.Uint32(b[4:]) > 0:
		if l, err := rfc1035label.FromBytes(trimZeros(b[8:])); err == nil {
			a.search = append(a.search, l.Labels...)
		}
	}
}

// trimZeros removes the padding after the zero that ends the last name.
func trimZeros(b []byte) []byte {
	for len(b) > 1 && b[len(b)-1] == 0 && b[len(b)-2] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// solicitation returns a router solicitation. The kernel adds the checksum.
func solicitation(mac []byte) []byte {
	return append([]byte{routerSolicitation, 0, 0, 0, 0, 0, 0, 0, optSourceLinkAddress, 1}, mac...)
}

// lifetime returns the uptime after a number of seconds.
func lifetime(now time.Duration, seconds uint32) time.Duration {
	if seconds == infinite {
		return forever
	}
	return now + time.Duration(seconds)*time.Second
}
