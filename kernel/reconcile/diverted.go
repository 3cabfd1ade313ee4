package reconcile

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Diverted is a destination for which the kernel does not use the owner's route.
type Diverted struct {
	Dst netip.Prefix
	By  string // the route that the kernel uses, or why it has none
}

// Diverted returns the owner's routes of the main table that the kernel does not use for the first address of their
// destination: because of another program's route, which is more specific or has precedence, or because of a rule. It does
// not find rules that select packets by their source or their link.
func (r *Reconciler) Diverted() (out []Diverted, _ error) {
	var all []netip.Prefix
	for k, v := range r.routes {
		if k.table == kernel.MainTable && v.typ == unix.RTN_UNICAST {
			all = append(all, k.dst)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	for some := range slices.Chunk(slices.Compact(all), changesPerWrite) {
		reqs := make([]netlink.Request, len(some))
		for i, dst := range some {
			reqs[i] = kernel.MatchRequest(dst.Addr())
		}
		resp, err := r.e.Requests(r.side, reqs)
		if err != nil {
			return nil, fmt.Errorf("look up routes: %w", err)
		}
		for i, dst := range some {
			if by := r.divertedBy(resp[i]); by != "" {
				out = append(out, Diverted{dst, by})
			}
		}
	}
	return out, nil
}

// divertedBy describes the route that the kernel uses, or returns "" if that is a route of the owner.
func (r *Reconciler) divertedBy(resp netlink.Response) string {
	if resp.Err != nil {
		return resp.Err.Error()
	}
	if len(resp.Messages) == 0 || len(resp.Messages[0]) < unix.SizeofRtMsg {
		return "no route"
	}
	h := kernel.ParseRoute(resp.Messages[0])
	if h.Protocol == r.owner.Protocol {
		return ""
	}
	text := "route " + h.Dst.String()
	if h.Via.IsValid() {
		text += " via " + h.Via.String()
	}
	if l, err := r.e.LinkByIndex(r.side, h.Index); err == nil {
		text += " dev " + l.Name
	}
	return text + fmt.Sprintf(" table %d proto %d", h.Table, h.Protocol)
}
