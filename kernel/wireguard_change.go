package kernel

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// wireguardKey is a private or public key of Curve25519. It prints as a public
// key's beginning; private ones are never printed.
type wireguardKey [32]byte

func (k wireguardKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// wireguardDevice is what a device says of itself.
type wireguardDevice struct {
	private wireguardKey
	port    int
	peers   map[wireguardKey]*wireguardPeer
}

type wireguardPeer struct {
	endpoint  netip.AddrPort
	keepalive int
	handshake time.Time // zero: none yet
	allowed   []netip.Prefix
}

// wireguardWanted is what a device should be.
type wireguardWanted struct {
	private wireguardKey
	port    int
	peers   []wantedPeer
}

type wantedPeer struct {
	key, previous wireguardKey // previous: zero if none
	endpoint      netip.AddrPort
	keepalive     int
	allowed       []netip.Prefix
}

// wireguardChanges are what makes a device as wanted.
type wireguardChanges struct {
	private *wireguardKey // nil: as it is
	port    int           // 0: as it is
	peers   []peerChange
}

// peerChange states what of a peer is to change, and nothing else.
type peerChange struct {
	key       wireguardKey
	add       bool
	remove    bool
	endpoint  netip.AddrPort // invalid: as it is
	keepalive int            // -1: as it is
	replace   bool           // allowed takes the place of what is there, else is added
	allowed   []netip.Prefix
}

func (c wireguardChanges) none() bool { return c.private == nil && c.port == 0 && len(c.peers) == 0 }

// changes are made in an order that leaves no address without a peer: an address
// given to one peer is taken from the other by that, so peers go last.
func (w *wireguardWanted) changes(have *wireguardDevice) (c wireguardChanges) {
	if have.private != w.private {
		c.private = &w.private
	}
	if have.port != w.port {
		c.port = w.port
	}
	wanted := map[wireguardKey]bool{}
	for _, p := range w.peers {
		for _, one := range p.byKey(have) {
			wanted[one.key] = true
			if change, some := one.change(have.peers[one.key]); some {
				c.peers = append(c.peers, change)
			}
		}
	}
	var gone []peerChange
	for key := range have.peers {
		if !wanted[key] {
			gone = append(gone, peerChange{key: key, remove: true, keepalive: -1})
		}
	}
	slices.SortFunc(gone, func(a, b peerChange) int { return slices.Compare(a.key[:], b.key[:]) })
	c.peers = append(c.peers, gone...)
	return c
}

// byKey are the peers that it is, one for each key: of two the previous has the
// addresses until the peer has used the new one.
func (p wantedPeer) byKey(have *wireguardDevice) []wantedPeer {
	if p.previous == (wireguardKey{}) || p.previous == p.key {
		return []wantedPeer{p}
	}
	old := p
	old.key = p.previous
	if have.handshake(p.key).After(have.handshake(p.previous)) {
		old.allowed = nil
	} else {
		p.allowed = nil
	}
	p.previous, old.previous = wireguardKey{}, wireguardKey{}
	return []wantedPeer{p, old}
}

func (d *wireguardDevice) handshake(key wireguardKey) (t time.Time) {
	if p := d.peers[key]; p != nil {
		t = p.handshake
	}
	return t
}

// sessionTime is how long a session lives without a new handshake
// (REJECT_AFTER_TIME in WireGuard's paper, section 6.1).
const sessionTime = 180 * time.Second

// change is the difference of a peer from what is there. Where a session lives the
// peer's address is the one that its packets come from: that is left alone.
func (p wantedPeer) change(have *wireguardPeer) (c peerChange, some bool) {
	c = peerChange{key: p.key, keepalive: -1}
	if have == nil {
		return peerChange{key: p.key, add: true, endpoint: p.endpoint, keepalive: p.keepalive, replace: true, allowed: p.allowed}, true
	}
	if have.endpoint != p.endpoint && p.endpoint.IsValid() && time.Since(have.handshake) > sessionTime {
		c.endpoint, some = p.endpoint, true
	}
	if have.keepalive != p.keepalive {
		c.keepalive, some = p.keepalive, true
	}
	more, fewer := without(p.allowed, have.allowed), without(have.allowed, p.allowed)
	switch {
	case len(fewer) > 0: // kernels before 6.16 cannot take away one
		c.replace, c.allowed, some = true, p.allowed, true
	case len(more) > 0:
		c.allowed, some = more, true
	}
	return c, some
}

// without are the prefixes of a that b has not.
func without(a, b []netip.Prefix) (out []netip.Prefix) {
	in := make(map[netip.Prefix]bool, len(b))
	for _, p := range b {
		in[p.Masked()] = true
	}
	for _, p := range a {
		if !in[p.Masked()] {
			out = append(out, p.Masked())
		}
	}
	return out
}

// words says what differs; of a private key only that it does.
func (c wireguardChanges) words() (d []string) {
	if c.private != nil {
		d = append(d, "its private key is another")
	}
	if c.port != 0 {
		d = append(d, fmt.Sprintf("does not listen on port %d", c.port))
	}
	for _, p := range c.peers {
		d = append(d, p.words()...)
	}
	return d
}

func (p peerChange) words() (d []string) {
	who := "peer " + p.key.String()
	switch {
	case p.remove:
		return []string{who + " should not be there"}
	case p.add:
		return []string{who + " is missing"}
	}
	if p.endpoint.IsValid() {
		d = append(d, who+": endpoint is not "+p.endpoint.String())
	}
	if p.keepalive >= 0 {
		d = append(d, fmt.Sprintf("%s: persistent-keepalive is not %d", who, p.keepalive))
	}
	switch {
	case p.replace:
		d = append(d, fmt.Sprintf("%s: allowed-ips are not %v alone", who, p.allowed))
	case len(p.allowed) > 0:
		d = append(d, fmt.Sprintf("%s: allowed-ips lack %v", who, p.allowed))
	}
	return d
}
