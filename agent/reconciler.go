package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// reconciler is the loop's view of the kernel. Only run may be called from another goroutine.
type reconciler interface {
	host(prefer, published []netip.Addr) (desired.Host, error) // the underlay link and its addresses
	learnedRoutes(link int) ([]backend.Learned, error)         // BGP routes that an earlier run installed
	reconcile(w *desired.State, synced bool) *reconcile.Report // applies the desired state
	invalidate()                                               // makes the next reconcile list all objects
	events() <-chan kernelEvents                               // kernel events that run received
	needsResync(h kernelEvents) bool                           // reports whether someone else changed our objects
	run(ctx context.Context) error                             // receives kernel events until the context ends
	close()
}

// kernelReconciler reconciles this host's kernel.
type kernelReconciler struct {
	conf       *config.Config
	engine     *kernel.Engine
	rec        *reconcile.Reconciler
	monitor    *reconcile.Monitor
	changes    chan kernelEvents
	namespaces map[string]*namespace // of isolated networks

	diverted []reconcile.Diverted

	prefer   []netip.Addr // addresses of the underlay, if it is not configured
	chosen   []netip.Addr // the addresses that host returned last
	home     home         // the underlay to keep while it has a default route
	link     string       // the underlay; "": unknown
	index    int          // of the link
	mtuIndex mtuIndex     // nil: list the links first
	uplinks  []string     // known if mtuIndex is
}

func newKernelReconciler(c *config.Config) (*kernelReconciler, error) {
	m, err := reconcile.NewMonitor()
	if err != nil {
		return nil, err
	}
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		m.Close()
		return nil, err
	}
	return &kernelReconciler{conf: c, engine: e, rec: reconcile.New(e, kernel.Host, owner()), monitor: m, changes: make(chan kernelEvents, 64), namespaces: map[string]*namespace{}}, nil
}

func (k *kernelReconciler) close() {
	for _, s := range k.namespaces {
		s.close()
	}
	k.monitor.Close()
	k.engine.Close()
}

func (k *kernelReconciler) events() <-chan kernelEvents { return k.changes }

func (k *kernelReconciler) run(ctx context.Context) error {
	return k.monitor.Run(ctx, func(ev []reconcile.Event) { k.send(ctx, kernelEvents{"", ev}) })
}

// needsResync reports whether the events contain changes that this agent neither made nor wants, or that can change the
// underlay.
func (k *kernelReconciler) needsResync(h kernelEvents) (yes bool) {
	rec, watch := k.rec, k.isUnderlay
	if h.network != "" {
		if k.namespaces[h.network] == nil {
			return false
		}
		rec, watch = k.namespaces[h.network].rec, nil
	}
	for _, ev := range h.events {
		if ev.Missed() && h.network == "" {
			k.mtuIndex, k.link = nil, "" // they come from events, too
		}
		if l, gone, ok := ev.Link(); ok && h.network == "" && k.mtuIndex != nil {
			yes = k.mtuIndex.update(l, gone) || yes
		}
		if h.network == "" && ev.ChangesDefaultRoute() {
			k.mtuIndex, k.link, yes = nil, "", true // the default route tells the underlay and the uplinks
		}
		yes = rec.NeedsResync(ev, watch) || yes
	}
	return yes
}

// isUnderlay reports whether a changed link is, or may become, the underlay. If so, host finds the underlay again.
func (k *kernelReconciler) isUnderlay(link string, index int) bool {
	if k.link != "" && k.link != link && k.index != index {
		return false
	}
	k.link = ""
	return true
}

func (k *kernelReconciler) invalidate() {
	k.mtuIndex, k.link = nil, ""
	k.rec.Invalidate()
	for _, s := range k.namespaces {
		s.rec.Invalidate()
	}
}

// reconcile applies the desired state, namespaces first: their veth pairs end on the host. If synced is false the
// desired state may be outdated, so nothing is removed.
func (k *kernelReconciler) reconcile(w *desired.State, synced bool) *reconcile.Report {
	rep := &reconcile.Report{}
	k.rec.NoRemove = !synced
	k.reconcileNamespaces(w.Namespaces, synced, rep)
	rep.Add(k.rec.Reconcile(w.Objects), "")
	if rep.Listed {
		var err error
		if k.diverted, err = k.rec.Diverted(); err != nil {
			rep.Errors = append(rep.Errors, err)
		}
	}
	rep.Diverted = k.diverted
	return rep
}

// host returns the underlay link and its addresses. It prefers the link and the addresses in prefer, unless the
// configuration names others. Otherwise it keeps the addresses that the node published or that host returned last: the
// kernel lists a new IPv6 address before the older ones.
func (k *kernelReconciler) host(prefer, published []netip.Addr) (desired.Host, error) {
	if k.conf.Interface != "" || len(k.conf.Addresses) > 0 {
		prefer = nil
	}
	if !slices.Equal(prefer, k.prefer) {
		k.prefer, k.link = slices.Clone(prefer), ""
	}
	name := k.link
	k.link = "" // find it again unless everything below succeeds
	if name == "" {
		var err error
		if name, err = k.underlay(published); err != nil {
			return desired.Host{}, err
		}
	}
	l, stable, unstable, err := k.engine.LinkAddrs(name)
	if errors.Is(err, os.ErrNotExist) && k.conf.Interface != "" {
		err = fmt.Errorf("%w: correct \"interface\" in the agent's configuration, or add the link", err)
	}
	if err != nil {
		return desired.Host{}, err
	}
	if k.mtuIndex == nil {
		links, err := k.engine.Links(kernel.Host)
		if err != nil {
			return desired.Host{}, err
		}
		if k.uplinks, err = k.engine.Uplinks(); err != nil {
			return desired.Host{}, err
		}
		k.mtuIndex = newMTUIndex(links)
	}
	h := desired.Host{Underlay: backend.Underlay{Link: l.Name, Index: l.Index, MTU: l.MTU}, MaxLinkMTU: k.mtuIndex.max(), Uplinks: k.uplinks}
	if l.Name == "lo" || l.Kind == "dummy" { // such an address is announced by a routing protocol: packets leave through other links
		if h.Underlay.MTU, err = k.uplinkMTU(); err != nil {
			return desired.Host{}, err
		}
		h.Underlay.Unbound = l.MTU < h.Underlay.MTU
	}
	wanted := slices.Concat(prefer, kept(slices.Concat(published, k.chosen), stable))
	h.Addresses, err = chooseAddresses(slices.Concat(stable, unstable), k.conf.Addresses, wanted)
	if err != nil {
		return desired.Host{}, fmt.Errorf("link %s: %w", name, err)
	}
	k.link, k.index, k.chosen = name, l.Index, addrsOf(h.Addresses)
	k.home.update(l.Index, k.chosen)
	return h, nil
}

// underlay returns the name of the link to other nodes: the configured link, the link with the configured address, or a
// default route's link. Of several, it is the home, so a VPN's or a second network's default route does not change the
// node's address. While there is no default route, it is the link with an address that host returned last or that this
// machine published.
func (k *kernelReconciler) underlay(published []netip.Addr) (string, error) {
	switch {
	case k.conf.Interface != "":
		return k.conf.Interface, nil
	case len(k.conf.Addresses) > 0:
		l, err := k.engine.LinkByAddr(k.conf.Addresses[0])
		if err != nil {
			return "", fmt.Errorf("%w: correct \"addresses\" in the agent's configuration, or add the address", err)
		}
		return l.Name, nil
	}
	if name, ok := k.linkByAddr(k.prefer); ok {
		return name, nil
	}
	list, err := k.defaultLinks()
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		return k.homeOf(list, published).Name, nil
	}
	if name, ok := k.linkByAddr(slices.Concat(k.chosen, published)); ok {
		return name, nil
	}
	return "", errors.New(`there is no default route: set "interface" in the agent's configuration`)
}

// home is the first underlay that an agent chose: a link, and its last addresses. If the link loses its default route,
// another link is the underlay until the default route is back.
type home struct {
	index int // 0: no underlay yet
	addrs []netip.Addr
}

// update records the current underlay's addresses. An underlay with another link and other addresses is not the home.
func (h *home) update(index int, addrs []netip.Addr) {
	moved := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(h.addrs, a) })
	if h.index == 0 || h.index == index || moved {
		h.index, h.addrs = index, addrs
	}
}

// homeOf returns the home, if it is one of the default routes' links, or else the first one. A new agent's home has the
// addresses that this machine published.
func (k *kernelReconciler) homeOf(list []*kernel.LinkInfo, published []netip.Addr) *kernel.LinkInfo {
	if len(list) == 1 {
		return list[0] // nothing to look up
	}
	addrs := k.home.addrs
	if k.home.index == 0 {
		addrs = published
	}
	indexes := []int{k.home.index}
	for _, a := range addrs {
		if l, err := k.engine.LinkByAddr(a); err == nil {
			indexes = append(indexes, l.Index)
		}
	}
	for _, l := range list {
		if slices.Contains(indexes, l.Index) {
			return l
		}
	}
	return list[0]
}

// linkByAddr returns the name of the link that has the first of the addresses that a link has.
func (k *kernelReconciler) linkByAddr(list []netip.Addr) (string, bool) {
	for _, a := range list {
		if l, err := k.engine.LinkByAddr(a); err == nil {
			return l.Name, true
		}
	}
	return "", false
}

// uplinkMTU returns the smallest MTU of the default routes' links, in bytes, or Ethernet's if there is none.
func (k *kernelReconciler) uplinkMTU() (int, error) {
	list, err := k.defaultLinks()
	if err != nil || len(list) == 0 {
		return 1500, err
	}
	return slices.MinFunc(list, func(a, b *kernel.LinkInfo) int { return cmp.Compare(a.MTU, b.MTU) }).MTU, nil
}

// defaultLinks returns the links of the default routes, those of IPv4 first.
func (k *kernelReconciler) defaultLinks() (out []*kernel.LinkInfo, _ error) {
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := k.engine.Routes(kernel.Host, fam, kernel.MainTable)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.IsUnicast() && r.Dst.Bits() == 0 && r.Index != 0 { // IPv6 lists an unreachable route with the link lo
				l, err := k.engine.LinkByIndex(kernel.Host, r.Index)
				if err != nil {
					return nil, err
				}
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// addrsOf returns the addresses without their prefix lengths.
func addrsOf(list []netip.Prefix) (out []netip.Addr) {
	for _, p := range list {
		out = append(out, p.Addr())
	}
	return out
}

// kept returns the former addresses to prefer. A stable address of the same family replaces an unstable one, which is
// temporary or deprecated.
func kept(former []netip.Addr, stable []netip.Prefix) []netip.Addr {
	return slices.DeleteFunc(former, func(a netip.Addr) bool {
		return slices.ContainsFunc(stable, func(p netip.Prefix) bool { return p.Addr().Is6() == a.Is6() }) &&
			!slices.ContainsFunc(stable, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// chooseAddresses returns the configured address of each family, or else the first of the preferred ones that the link
// has, or else the link's first one. It treats unique local and global IPv6 addresses alike.
func chooseAddresses(have []netip.Prefix, asked, prefer []netip.Addr) (out []netip.Prefix, _ error) {
	order := slices.Concat(asked, prefer)
	place := func(p netip.Prefix) int {
		if i := slices.Index(order, p.Addr()); i >= 0 {
			return i
		}
		return len(order)
	}
	for _, six := range []bool{false, true} {
		var best netip.Prefix
		for _, p := range have {
			usable := !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback()
			if usable && p.Addr().Is6() == six && (!best.IsValid() || place(p) < place(best)) {
				best = p
			}
		}
		for _, a := range asked {
			if a.Is6() == six && best.Addr() != a {
				return nil, fmt.Errorf("it lacks the configured address %s; it has %v", a, have)
			}
		}
		if best.IsValid() && (len(asked) == 0 || slices.Contains(asked, best.Addr())) {
			out = append(out, best)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("it has no address that other nodes could reach: add one, or set \"interface\" in the agent's configuration")
	}
	return out, nil
}
