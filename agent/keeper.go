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
	events  chan heard
	spaces  map[string]*space // of isolated networks

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
	return &keeper{conf: c, engine: e, rec: kernel.NewReconciler(e, kernel.Host, owner()), monitor: m, events: make(chan heard, 64), spaces: map[string]*space{}}, nil
}

func (k *keeper) close() {
	for _, s := range k.spaces {
		s.close()
	}
	k.monitor.Close()
	k.engine.Close()
}

// contradicts tells whether changes are none that this agent made or wants.
func (k *keeper) contradicts(h heard) (yes bool) {
	rec, watch := k.rec, func(link string) bool { return link == k.link || k.link == "" }
	if h.network != "" {
		if k.spaces[h.network] == nil {
			return false
		}
		rec, watch = k.spaces[h.network].rec, nil
	}
	for _, ev := range h.events {
		yes = rec.Contradicts(ev, watch) || yes
	}
	return yes
}

func (k *keeper) forget() {
	k.rec.Forget()
	for _, s := range k.spaces {
		s.rec.Forget()
	}
}

// reconcile makes all so: the spaces first, whose pairs have ends on the host. With
// sure false what is wanted may be old, and nothing is taken away.
func (k *keeper) reconcile(w *Wanted, sure bool) *kernel.Report {
	rep := &kernel.Report{}
	k.rec.Spare = !sure
	k.spacesAs(w.Spaces, sure, rep)
	rep.Add(k.rec.Reconcile(w.Objects), "")
	return rep
}

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
