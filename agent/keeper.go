package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// keeper is what the loop asks of the kernel. But for run it is the loop's alone.
type keeper interface {
	host() (Host, error)                              // the link to other nodes, as it is now
	kept(link int) ([]backend.Learned, error)         // routes that an earlier life learned
	reconcile(w *Wanted, sure bool) *reconcile.Report // makes all so
	forget()                                          // the next reconcile lists what is there
	told() <-chan heard                               // what run heard
	contradicts(h heard) bool                         // tells whether that is another's doing
	run(ctx context.Context) error                    // listens until the context ends
	close()
}

// kernelKeeper is the agent's hold on this host's kernel.
type kernelKeeper struct {
	conf    *config.Config
	engine  *kernel.Engine
	rec     *reconcile.Reconciler
	monitor *reconcile.Monitor
	events  chan heard
	spaces  map[string]*space // of isolated networks

	link    string  // the underlay, as found; "": to be found
	heights heights // nil: to be listed
}

func newKeeper(c *config.Config) (*kernelKeeper, error) {
	m, err := reconcile.NewMonitor()
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		m.Close()
		return nil, err
	}
	return &kernelKeeper{conf: c, engine: e, rec: reconcile.New(e, kernel.Host, owner()), monitor: m, events: make(chan heard, 64), spaces: map[string]*space{}}, nil
}

func (k *kernelKeeper) close() {
	for _, s := range k.spaces {
		s.close()
	}
	k.monitor.Close()
	k.engine.Close()
}

func (k *kernelKeeper) told() <-chan heard { return k.events }

func (k *kernelKeeper) run(ctx context.Context) error {
	return k.monitor.Run(ctx, func(ev []reconcile.Event) { k.tell(ctx, heard{"", ev}) })
}

// contradicts tells whether changes are none that this agent made or wants.
func (k *kernelKeeper) contradicts(h heard) (yes bool) {
	rec, watch := k.rec, k.reachedBy
	if h.network != "" {
		if k.spaces[h.network] == nil {
			return false
		}
		rec, watch = k.spaces[h.network].rec, nil
	}
	for _, ev := range h.events {
		if l, gone, ok := ev.Link(); ok && h.network == "" && k.heights != nil {
			yes = k.heights.note(l, gone) || yes
		}
		yes = rec.NeedsResync(ev, watch) || yes
	}
	return yes
}

// reachedBy tells whether a link of which there is news is, or may become, the one by
// which other nodes are reached. It is then looked for again.
func (k *kernelKeeper) reachedBy(link string) bool {
	if k.link != "" && k.link != link {
		return false
	}
	k.link = ""
	return true
}

func (k *kernelKeeper) forget() {
	k.heights, k.link = nil, ""
	k.rec.Invalidate()
	for _, s := range k.spaces {
		s.rec.Invalidate()
	}
}

// reconcile makes all so: the spaces first, whose pairs have ends on the host. With
// sure false what is wanted may be old, and nothing is taken away.
func (k *kernelKeeper) reconcile(w *Wanted, sure bool) *reconcile.Report {
	rep := &reconcile.Report{}
	k.rec.NoRemove = !sure
	k.spacesAs(w.Spaces, sure, rep)
	rep.Add(k.rec.Reconcile(w.Objects), "")
	return rep
}

// Host is what this host's kernel says that matters.
type Host struct {
	Underlay  backend.Underlay
	Addresses []netip.Prefix // one of each family at most

	Tallest int // bytes: the largest MTU of containers' links

	KeyFile, Socket string   // wireguard: its private key, and the socket of a device in user space
	Program         []string // wireguard: what starts one
	Flannel         bool     // the tunnel has flannel's name
	Learned         []backend.Learned
}

// host finds the link by which other nodes are reached, and its addresses.
func (k *kernelKeeper) host() (Host, error) {
	name := k.link
	k.link = "" // to be found anew unless all is well with it
	if name == "" {
		var err error
		if name, err = k.underlay(); err != nil {
			return Host{}, err
		}
	}
	l, addrs, err := k.engine.LinkAddrs(name)
	if err != nil {
		return Host{}, err
	}
	if k.heights == nil {
		links, err := k.engine.Links(kernel.Host)
		if err != nil {
			return Host{}, err
		}
		k.heights = heightsOf(links)
	}
	h := Host{Underlay: backend.Underlay{Link: l.Name, Index: l.Index, MTU: l.MTU}, Tallest: k.heights.tallest()}
	h.Addresses, err = choose(addrs, k.conf.Addresses)
	if err != nil {
		return Host{}, fmt.Errorf("link %s: %w", name, err)
	}
	k.link = name
	return h, nil
}

// underlay is the link by which other nodes are reached: the configured one, that of
// the configured address, or the default route's.
func (k *kernelKeeper) underlay() (string, error) {
	switch {
	case k.conf.Interface != "":
		return k.conf.Interface, nil
	case len(k.conf.Addresses) > 0:
		l, err := k.engine.LinkByAddr(k.conf.Addresses[0])
		if err != nil {
			return "", err
		}
		return l.Name, nil
	}
	return k.defaultLink()
}

// defaultLink is the link of the default route.
func (k *kernelKeeper) defaultLink() (string, error) {
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := k.engine.Routes(kernel.Host, fam, kernel.MainTable)
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
			if p.Addr().Is6() != six || p.Addr().IsLinkLocalUnicast() || first.IsValid() && !slices.Contains(asked, p.Addr()) {
				continue
			}
			first = p
		}
		for _, a := range asked {
			if a.Is6() == six && first.Addr() != a {
				return nil, fmt.Errorf("it has not the address %s that the configuration names; it has %v", a, have)
			}
		}
		if first.IsValid() && (len(asked) == 0 || slices.Contains(asked, first.Addr())) {
			out = append(out, first)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("it has no address by which others could reach this node")
	}
	return out, nil
}
