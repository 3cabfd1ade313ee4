package agent

import "github.com/fairlead/fairlead/kernel"

// heights are the MTUs of the links to this host's containers, by the links' numbers.
// Where one is larger than what a tunnel carries, TCP through the tunnel is clamped;
// else packets do not pay for a rule that never does anything.
type heights map[int]int

// heightsOf are those of the links that there are.
func heightsOf(links []*kernel.LinkInfo) heights {
	h := heights{}
	for _, l := range links {
		h.note(l, false)
	}
	return h
}

// note takes what a link became, and tells whether the tallest is another now.
func (h heights) note(l *kernel.LinkInfo, gone bool) (changed bool) {
	was := h.tallest()
	if !gone && l.Group == kernel.LinkGroup && kernel.IsOwnerTag(l.Alias) {
		h[l.Index] = l.MTU
	} else {
		delete(h, l.Index)
	}
	return h.tallest() != was
}

func (h heights) tallest() (most int) {
	for _, mtu := range h {
		most = max(most, mtu)
	}
	return most
}
