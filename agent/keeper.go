package agent

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/kernel"
)

// keeper is the agent's hold on this host's kernel. It is the loop's alone.
type keeper struct {
	conf    *config.Config
	engine  *kernel.Engine
	rec     *kernel.Reconciler
	monitor *kernel.Monitor
	events  chan []kernel.Event

	link string // the underlay, as last found
}

func newKeeper(c *config.Config) (*keeper, error) {
	m, err := kernel.NewMonitor()
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		m.Close()
		return nil, err
	}
	return &keeper{conf: c, engine: e, rec: kernel.NewReconciler(e, kernel.Host, owner()), monitor: m, events: make(chan []kernel.Event, 64)}, nil
}

func (k *keeper) close() {
	k.monitor.Close()
	k.engine.Close()
}

func (k *keeper) heard(events []kernel.Event) { k.events <- events }

func (k *keeper) contradicts(events []kernel.Event) (yes bool) {
	for _, ev := range events {
		yes = k.rec.Contradicts(ev, func(link string) bool { return link == k.link || k.link == "" }) || yes
	}
	return yes
}

func (k *keeper) forget() { k.rec.Forget() }

func (k *keeper) reconcile(want kernel.Objects) *kernel.Report { return k.rec.Reconcile(want) }

// Host is what this host's kernel says that matters.
type Host struct {
	Underlay  backend.Underlay
	Addresses []netip.Prefix // one of each family at most

	KeyFile, Socket string   // wireguard: its private key, and the socket of a device in user space
	Program         []string // wireguard: what starts one
	Flannel         bool     // the tunnel has flannel's name
	Learned         []backend.Learned
}

// host finds the link by which other nodes are reached, and its addresses.
func (k *keeper) host() (Host, error) {
	name := k.conf.Interface
	if name == "" && len(k.conf.Addresses) > 0 {
		l, _, err := k.engine.LinkOf(k.conf.Addresses[0])
		if err != nil {
			return Host{}, err
		}
		name = l.Name
	}
	if name == "" {
		var err error
		if name, err = k.defaultLink(); err != nil {
			return Host{}, err
		}
	}
	l, addrs, err := k.engine.AddressesOf(name)
	if err != nil {
		return Host{}, err
	}
	k.link = name
	h := Host{Underlay: backend.Underlay{Link: l.Name, Index: l.Index, MTU: l.MTU}}
	h.Addresses, err = choose(addrs, k.conf.Addresses)
	if err != nil {
		return Host{}, fmt.Errorf("link %s: %w", name, err)
	}
	return h, nil
}

// defaultLink is the link of the default route.
func (k *keeper) defaultLink() (string, error) {
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := k.engine.Routes(kernel.Host, fam, 0)
		if err != nil {
			return "", err
		}
		for _, r := range routes {
			if r.Dst.Bits() == 0 && r.Index != 0 {
				l, err := k.engine.LinkByIndex(kernel.Host, r.Index)
				if err != nil {
					return "", err
				}
				return l.Name, nil
			}
		}
	}
	return "", fmt.Errorf(`there is no default route: name the link, "interface" in the agent's configuration`)
}

// choose is the configured address of each family, else the first; unique local
// and global ones of IPv6 are the same here.
func choose(have []netip.Prefix, asked []netip.Addr) (out []netip.Prefix, _ error) {
	for _, six := range []bool{false, true} {
		var first netip.Prefix
		for _, p := range have {
			if p.Addr().Is6() != six || p.Addr().IsLinkLocalUnicast() || first.IsValid() && !contains(asked, p.Addr()) {
				continue
			}
			first = p
		}
		for _, a := range asked {
			if a.Is6() == six && first.Addr() != a {
				return nil, fmt.Errorf("it has not the address %s that the configuration names; it has %v", a, have)
			}
		}
		if first.IsValid() && (len(asked) == 0 || contains(asked, first.Addr())) {
			out = append(out, first)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("it has no address by which others could reach this node")
	}
	return out, nil
}

func contains(list []netip.Addr, a netip.Addr) bool {
	for _, x := range list {
		if x == a {
			return true
		}
	}
	return false
}
