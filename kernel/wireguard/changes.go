package wireguard

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Key is a private or public Curve25519 key. Only public keys are ever printed.
type Key [32]byte

func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Device is the state of a device.
type Device struct {
	PrivateKey Key
	ListenPort int
	Peers      map[Key]*Peer
}

// Peer is a peer as a device reports it.
type Peer struct {
	endpoint  netip.AddrPort
	keepalive int
	handshake time.Time // zero: none yet
	allowed   []netip.Prefix
}

// Config is the desired configuration of a device.
type Config struct {
	PrivateKey Key
	ListenPort int
	Peers      []PeerConfig
}

// PeerConfig is the desired configuration of a peer.
type PeerConfig struct {
	PublicKey, PreviousKey Key // previous: zero if none
	Endpoint               netip.AddrPort
	Keepalive              int
	AllowedIPs             []netip.Prefix
}

// Changes turns a device into its desired configuration.
type Changes struct {
	private *Key // nil: unchanged
	port    int  // 0: unchanged
	peers   []PeerChange
}

// PeerChange contains the changes to one peer.
type PeerChange struct {
	key       Key
	add       bool
	remove    bool
	endpoint  netip.AddrPort // invalid: unchanged
	keepalive int            // seconds; -1: unchanged
	replace   bool           // allowed replaces the existing list instead of extending it
	allowed   []netip.Prefix
}

// Empty reports whether there is nothing to change.
func (c Changes) Empty() bool { return c.private == nil && c.port == 0 && len(c.peers) == 0 }

// Changes returns the changes from a device to the configuration. Their order never leaves an address without a peer:
// adding an address to one peer removes it from another, so unwanted peers are removed last.
func (w *Config) Changes(have *Device) (c Changes) {
	if have.PrivateKey != w.PrivateKey {
		c.private = &w.PrivateKey
	}
	if have.ListenPort != w.ListenPort {
		c.port = w.ListenPort
	}
	wanted := map[Key]bool{}
	for _, p := range w.Peers {
		for _, one := range p.byKey(have) {
			wanted[one.PublicKey] = true
			if change, some := one.change(have.Peers[one.PublicKey], have.ListenPort); some {
				c.peers = append(c.peers, change)
			}
		}
	}
	var gone []PeerChange
	for key := range have.Peers {
		if !wanted[key] {
			gone = append(gone, PeerChange{key: key, remove: true, keepalive: -1})
		}
	}
	slices.SortFunc(gone, func(a, b PeerChange) int { return slices.Compare(a.key[:], b.key[:]) })
	c.peers = append(c.peers, gone...)
	return c
}

// byKey returns the peer once for each of its keys. During a key change the previous key keeps the addresses until the
// peer has used the new one.
func (p PeerConfig) byKey(have *Device) []PeerConfig {
	if p.PreviousKey == (Key{}) || p.PreviousKey == p.PublicKey {
		return []PeerConfig{p}
	}
	old := p
	old.PublicKey = p.PreviousKey
	if have.handshake(p.PublicKey).After(have.handshake(p.PreviousKey)) {
		old.AllowedIPs = nil
	} else {
		p.AllowedIPs = nil
	}
	p.PreviousKey, old.PreviousKey = Key{}, Key{}
	return []PeerConfig{p, old}
}

func (d *Device) handshake(key Key) (t time.Time) {
	if p := d.Peers[key]; p != nil {
		t = p.handshake
	}
	return t
}

// sessionTime is the lifetime of a session without a new handshake (REJECT_AFTER_TIME in WireGuard's paper, section
// 6.1).
const sessionTime = 180 * time.Second

// change returns the difference from an existing peer, and whether there is one. A peer with a live session keeps its
// endpoint, which is where its packets come from. But if all nodes change the port that they and the device had until now,
// no packet would arrive at either end.
func (p PeerConfig) change(have *Peer, port int) (c PeerChange, some bool) {
	c = PeerChange{key: p.PublicKey, keepalive: -1}
	if have == nil {
		return PeerChange{key: p.PublicKey, add: true, endpoint: p.Endpoint, keepalive: p.Keepalive, replace: true, allowed: p.AllowedIPs}, true
	}
	newPort := int(have.endpoint.Port()) == port && have.endpoint.Port() != p.Endpoint.Port()
	if have.endpoint != p.Endpoint && p.Endpoint.IsValid() && (newPort || time.Since(have.handshake) > sessionTime) {
		c.endpoint, some = p.Endpoint, true
	}
	if have.keepalive != p.Keepalive {
		c.keepalive, some = p.Keepalive, true
	}
	more, fewer := without(p.AllowedIPs, have.allowed), without(have.allowed, p.AllowedIPs)
	switch {
	case len(fewer) > 0: // kernels before 6.16 cannot remove a single address
		c.replace, c.allowed, some = true, p.AllowedIPs, true
	case len(more) > 0:
		c.allowed, some = more, true
	}
	return c, some
}

// without returns the prefixes that are in a and not in b.
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

// Describe returns the differences as text. Of a private key it tells only that it differs.
func (c Changes) Describe() (d []string) {
	if c.private != nil {
		d = append(d, "the private key differs")
	}
	if c.port != 0 {
		d = append(d, fmt.Sprintf("does not listen on port %d", c.port))
	}
	for _, p := range c.peers {
		d = append(d, p.describe()...)
	}
	return d
}

func (p PeerChange) describe() (d []string) {
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
		d = append(d, fmt.Sprintf("%s: allowed-ips are not exactly %v", who, p.allowed))
	case len(p.allowed) > 0:
		d = append(d, fmt.Sprintf("%s: allowed-ips lack %v", who, p.allowed))
	}
	return d
}

// maxGreeted is the number of new peers that Greet starts sessions with at once. A handshake costs both sides.
const maxGreeted = 256

// Greet starts a session with each new peer. When two nodes learn of each other, the first handshake reaches a node
// that does not know its sender yet, and would be repeated only after five seconds. The handshake of the second node is
// answered. A device sends a packet at once when keepalive is switched on for a peer.
func Greet(end Control, c Changes) error {
	var on, off Changes
	for _, p := range c.peers {
		if p.add && p.keepalive == 0 && p.endpoint.IsValid() {
			on.peers = append(on.peers, PeerChange{key: p.key, keepalive: 1})
			off.peers = append(off.peers, PeerChange{key: p.key, keepalive: 0})
		}
	}
	if len(on.peers) == 0 || len(on.peers) > maxGreeted {
		return nil
	}
	if err := end.Set(on); err != nil {
		return err
	}
	return end.Set(off)
}

// Control reads and changes a device.
type Control interface {
	Get() (*Device, error)
	Set(Changes) error
}
