package kernel

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// WireGuard is an encrypting tunnel link of the agent: the kernel's, or, where that
// has none and Program says how, one of a process that outlives this one. Nothing
// shows its private key. A change of one peer leaves the others' sessions alone.
type WireGuard struct {
	base
	Name     string          `json:",omitzero"`
	KeyFile  string          `json:",omitzero"` // the private key, base64; nobody but root may read it
	Port     int             `json:",omitzero"` // UDP
	Peers    []WireGuardPeer `json:",omitzero"`
	MTU      int             `json:",omitzero"`     // bytes
	OwnerTag string          `json:"Mark,omitzero"` // alias

	Program []string `json:",omitzero"` // starts a device in user space; the link's name and Socket follow
	Socket  string   `json:",omitzero"` // of that process, by which it is set and asked
}

// WireGuardPeer is another end.
type WireGuardPeer struct {
	PublicKey  string         `json:",omitzero"` // base64
	Previous   string         `json:",omitzero"` // the key it had: it has the addresses until the new one is seen in use
	Endpoint   netip.AddrPort `json:",omitzero"`
	AllowedIPs []netip.Prefix `json:",omitzero"`
	Keepalive  int            `json:",omitzero"` // seconds; 0: none
}

func (w *WireGuard) kind() string      { return "wireguard" }
func (w *WireGuard) Side() Side        { return Host }
func (w *WireGuard) Shared() bool      { return false }
func (w *WireGuard) links() []linkName { return []linkName{{Host, w.Name}} }

// String is the link in ip(8)'s words, and its peers in wg(8)'s.
func (w *WireGuard) String() string {
	s := "ip link add " + w.Name
	if w.MTU > 0 {
		s += " mtu " + strconv.Itoa(w.MTU)
	}
	s += fmt.Sprintf(" up type wireguard; wg set %s listen-port %d private-key %s", w.Name, w.Port, w.KeyFile)
	for _, p := range w.Peers {
		s += p.words()
	}
	return s
}

func (p WireGuardPeer) words() string {
	s := " peer " + p.PublicKey
	if p.Previous != "" {
		s += " (until it is used " + p.Previous + ")"
	}
	if p.Endpoint.IsValid() {
		s += " endpoint " + p.Endpoint.String()
	}
	if p.Keepalive > 0 {
		s += " persistent-keepalive " + strconv.Itoa(p.Keepalive)
	}
	var ips []string
	for _, a := range p.AllowedIPs {
		ips = append(ips, a.String())
	}
	return s + " allowed-ips " + strings.Join(ips, ",")
}

func (w *WireGuard) tunnel(typ string) tunnel {
	return tunnel{side: Host, name: w.Name, typ: typ, mtu: w.MTU, ownerTag: w.OwnerTag,
		data: func(*netlink.Buffer, int) {}, differs: func(*LinkInfo, int) []string { return nil }}
}

// userspaceKind is what the kernel calls a link of a process's.
const userspaceKind = "tun"

// typ is the kind of link that it is or, when it is not there, will be first tried.
func (w *WireGuard) typ(e *Engine) (string, error) {
	l, err := e.Link(Host, w.Name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "wireguard", nil
	case err == nil && l.Kind == userspaceKind && len(w.Program) > 0:
		return userspaceKind, nil
	}
	return "wireguard", err
}

func (w *WireGuard) ensure(e *Engine) error {
	want, err := w.desired()
	if err != nil {
		return err
	}
	typ, err := w.typ(e)
	if err == nil {
		err = e.ensureTunnel(w, w.tunnel(typ))
	}
	if err == nil {
		err = e.flush()
	}
	if errors.Is(err, unix.EOPNOTSUPP) && len(w.Program) > 0 {
		typ = userspaceKind
		if err = w.start(e); err == nil {
			err = e.ensureTunnel(w, w.tunnel(typ))
		}
	}
	if err != nil {
		return err
	}
	end := w.end(e, typ)
	have, err := end.get()
	if err != nil {
		return err
	}
	c := want.changes(have)
	if err := end.set(c); err != nil {
		return err
	}
	return greet(end, c)
}

// greeted is how many new peers are greeted at once: a handshake costs both.
const greeted = 256

// greet begins a session with each new peer. Of two nodes that learn of each other the
// first one's handshake is to somebody who does not know it yet, and would be repeated
// after five seconds only; the second one's is answered. A device sends at once when a
// peer's keepalive is switched on.
func greet(end wireguardEnd, c wireguardChanges) error {
	var on, off wireguardChanges
	for _, p := range c.peers {
		if p.add && p.keepalive == 0 && p.endpoint.IsValid() {
			on.peers = append(on.peers, peerChange{key: p.key, keepalive: 1})
			off.peers = append(off.peers, peerChange{key: p.key, keepalive: 0})
		}
	}
	if len(on.peers) == 0 || len(on.peers) > greeted {
		return nil
	}
	if err := end.set(on); err != nil {
		return err
	}
	return end.set(off)
}

func (w *WireGuard) diff(e *Engine) ([]string, error) {
	want, err := w.desired()
	if err != nil {
		return nil, err
	}
	typ, err := w.typ(e)
	if err != nil {
		return nil, err
	}
	d, err := e.diffTunnel(w.tunnel(typ))
	if err != nil {
		return nil, err
	}
	if len(d) > 0 && strings.HasPrefix(d[0], "is no ") {
		return d, nil
	}
	have, err := w.end(e, typ).get()
	if err != nil {
		return d, err
	}
	return append(d, want.changes(have).words()...), nil
}

// remove deletes the link; a process in user space ends with it.
func (w *WireGuard) remove(e *Engine) error {
	typ, err := w.typ(e)
	if err != nil {
		return err
	}
	return e.removeTunnel(w.tunnel(typ))
}

// wireguardEnd is how a device is asked and set.
type wireguardEnd interface {
	get() (*wireguardDevice, error)
	set(wireguardChanges) error
}

func (w *WireGuard) end(e *Engine, typ string) wireguardEnd {
	if typ == userspaceKind {
		return wireguardText{w.Socket}
	}
	return wireguardLink{e, w.Name}
}

// device is what is wanted, with the key read.
func (w *WireGuard) desired() (*wireguardWanted, error) {
	key, err := readPrivateKey(w.KeyFile)
	if err != nil {
		return nil, err
	}
	out := &wireguardWanted{private: key, port: w.Port}
	for _, p := range w.Peers {
		one := wantedPeer{keepalive: p.Keepalive, endpoint: p.Endpoint, allowed: p.AllowedIPs}
		if one.key, err = parseKey(p.PublicKey); err != nil {
			return nil, fmt.Errorf("public key %q of the peer at %s: %w", p.PublicKey, p.Endpoint, err)
		}
		if p.Previous != "" {
			if one.previous, err = parseKey(p.Previous); err != nil {
				return nil, fmt.Errorf("previous public key %q of the peer at %s: %w", p.Previous, p.Endpoint, err)
			}
		}
		out.peers = append(out.peers, one)
	}
	return out, nil
}

func readPrivateKey(file string) (key wireguardKey, err error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return key, fmt.Errorf("private key %s: %w", file, err)
	}
	if st.Mode&0o077 != 0 {
		return key, fmt.Errorf("private key %s: others than its owner can use it (mode %04o): chmod 0600 %s, and have a new one made if others may have read it", file, st.Mode&0o777, file)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return key, err
	}
	if key, err = parseKey(strings.TrimSpace(string(raw))); err != nil {
		return key, fmt.Errorf("private key %s: %w", file, err)
	}
	key[0] &= 248 // RFC 7748, section 5: as every implementation keeps it
	key[31] = key[31]&127 | 64
	return key, nil
}

// parseKey reads 32 bytes of base64; its error does not show them.
func parseKey(s string) (key wireguardKey, err error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("want 32 bytes in base64, 44 characters")
	}
	copy(key[:], raw)
	return key, nil
}
