package agent

import "github.com/fairlead/fairlead/kernel"

// mtuIndex maps the interface index of each link to a container on this host to its MTU in bytes. If one is larger than
// a tunnel's MTU, TCP through the tunnel is clamped. Otherwise the rule is left out and costs nothing.
type mtuIndex map[int]int

// newMTUIndex returns the index of the given links.
func newMTUIndex(links []*kernel.LinkInfo) mtuIndex {
	h := mtuIndex{}
	for _, l := range links {
		h.update(l, false)
	}
	return h
}

// update records a changed or removed link. It reports whether the largest MTU changed.
func (h mtuIndex) update(l *kernel.LinkInfo, gone bool) (changed bool) {
	old := h.max()
	if !gone && l.Group == kernel.LinkGroup && kernel.IsOwnerTag(l.Alias) {
		h[l.Index] = l.MTU
	} else {
		delete(h, l.Index)
	}
	return h.max() != old
}

func (h mtuIndex) max() (most int) {
	for _, mtu := range h {
		most = max(most, mtu)
	}
	return most
}
