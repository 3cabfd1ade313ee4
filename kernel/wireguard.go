package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/wireguard"
)

// WireGuard is an encrypted tunnel link of the agent: a device of the kernel or, if the kernel has none and Program is
// set, of a process that outlives this one. Its private key is never printed. Changing one peer does not interrupt the
// sessions of others.
type WireGuard struct {
	base
	Name     string          `json:",omitzero"`
	KeyFile  string          `json:",omitzero"` // private key in base64; only root may read the file
	Port     int             `json:",omitzero"` // UDP
	Peers    []WireGuardPeer `json:",omitzero"`
	MTU      int             `json:",omitzero"`     // bytes
	OwnerTag string          `json:"Mark,omitzero"` // alias

	Program []string `json:",omitzero"` // command that starts a device in user space; the link's name and Socket are appended
	Socket  string   `json:",omitzero"` // path of that process's control socket
}

// WireGuardPeer is a peer.
type WireGuardPeer struct {
	PublicKey  string         `json:",omitzero"` // base64
	Previous   string         `json:",omitzero"` // previous key: it has the addresses until the peer uses the new one
	Endpoint   netip.AddrPort `json:",omitzero"`
	AllowedIPs []netip.Prefix `json:",omitzero"`
	Keepalive  int            `json:",omitzero"` // seconds; 0: none
}

func (w *WireGuard) kind() string      { return "wireguard" }
func (w *WireGuard) Side() Side        { return Host }
func (w *WireGuard) Shared() bool      { return false }
func (w *WireGuard) links() []linkName { return []linkName{{Host, w.Name}} }

// String returns the link as ip(8) and its peers as wg(8) write them.
func (w *WireGuard) String() string {
	s := w.command()
	for _, p := range w.Peers {
		s += p.words()
	}
	return s
}

// summary returns the text for errors: a cluster's node has a peer for each other node.
func (w *WireGuard) summary() string {
	return fmt.Sprintf("%s with %d peers", w.command(), len(w.Peers))
}

func (w *WireGuard) command() string {
	s := "ip link add " + w.Name
	if w.MTU > 0 {
		s += " mtu " + strconv.Itoa(w.MTU)
	}
	return s + fmt.Sprintf(" up type wireguard; wg set %s listen-port %d private-key %s", w.Name, w.Port, w.KeyFile)
}

func (p WireGuardPeer) words() string {
	s := " peer " + p.PublicKey
	if p.Previous != "" {
		s += " (previous " + p.Previous + ")"
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
	return tunnel{side: Host, name: w.Name, typ: typ, mtu: w.MTU, port: w.Port, ownerTag: w.OwnerTag,
		data: func(*netlink.Buffer, int) {}, differs: func(*LinkInfo, int) []string { return nil }}
}

// userspaceKind is the type of a link whose device is a process.
const userspaceKind = "tun"

// typ returns the type of the existing link, or of the link that ensure tries first.
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
	if err := e.flush(); err != nil {
		return err
	}
	end := w.end(e, typ)
	have, err := end.Get()
	if err != nil {
		return err
	}
	c := want.Changes(have)
	if err := end.Set(c); err != nil {
		return explainPort(w.Port, err)
	}
	return wireguard.Greet(end, c)
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
	if len(d) > 0 && strings.HasPrefix(d[0], "is not of type ") {
		return d, nil
	}
	if err := e.flush(); err != nil {
		return d, err
	}
	have, err := w.end(e, typ).Get()
	if err != nil {
		return d, err
	}
	return append(d, want.Changes(have).Describe()...), nil
}

// remove deletes the link. A process in user space ends with its link.
func (w *WireGuard) remove(e *Engine) error {
	typ, err := w.typ(e)
	if err != nil {
		return err
	}
	return e.removeTunnel(w.tunnel(typ))
}

func (w *WireGuard) end(e *Engine, typ string) wireguard.Control {
	if typ == userspaceKind {
		return wireguard.SocketDevice{Path: w.Socket}
	}
	return wireguard.KernelDevice{Name: w.Name}
}

// desired returns the desired configuration, with the private key read from its file.
func (w *WireGuard) desired() (*wireguard.Config, error) {
	key, err := wireguard.ReadPrivateKey(w.KeyFile)
	if err != nil {
		return nil, err
	}
	out := &wireguard.Config{PrivateKey: key, ListenPort: w.Port}
	for _, p := range w.Peers {
		one := wireguard.PeerConfig{Keepalive: p.Keepalive, Endpoint: p.Endpoint, AllowedIPs: p.AllowedIPs}
		if one.PublicKey, err = wireguard.ParseKey(p.PublicKey); err != nil {
			return nil, fmt.Errorf("public key %q of the peer at %s: %w", p.PublicKey, p.Endpoint, err)
		}
		if p.Previous != "" {
			if one.PreviousKey, err = wireguard.ParseKey(p.Previous); err != nil {
				return nil, fmt.Errorf("previous public key %q of the peer at %s: %w", p.Previous, p.Endpoint, err)
			}
		}
		out.Peers = append(out.Peers, one)
	}
	return out, nil
}
