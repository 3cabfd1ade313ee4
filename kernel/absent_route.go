package kernel

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// AbsentRoute is a route that must not exist, because another table has it. Removing the object adds the route again if
// its link still exists.
type AbsentRoute struct {
	base
	Route Route
}

func (n *AbsentRoute) kind() string { return "noroute" }
func (n *AbsentRoute) Side() Side   { return n.Route.In }
func (n *AbsentRoute) Shared() bool { return false }
func (n *AbsentRoute) on() linkName { return n.Route.on() }

func (n *AbsentRoute) String() string {
	return strings.Replace(n.Route.String(), "route add", "route del", 1)
}

func (n *AbsentRoute) ensure(e *Engine) error {
	i, err := e.LinkIndex(n.Route.In, n.Route.Link)
	if err != nil {
		return err
	}
	return e.send(n, n.Route.In, netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: n.Route.Message(i)}, func(r netlink.Response) error {
		if r.Err == nil {
			e.noteCreated(n)
		}
		return ignoreAbsent(r)
	})
}

func (n *AbsentRoute) diff(e *Engine) ([]string, error) {
	i, err := e.LinkIndex(n.Route.In, n.Route.Link)
	if err != nil {
		return nil, err
	}
	have, err := n.Route.sameFamily(e, n.Route.RoutingTable(), 0)
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.Dst == n.Route.Dst && h.Index == i && n.Route.sameGateways(h) && h.Metric == n.Route.Metric {
			return []string{fmt.Sprintf("exists again in table %d", h.Table)}, nil
		}
	}
	return nil, nil
}

// restore removes the route, whoever added it.
func (n *AbsentRoute) restore(e *Engine) error {
	err := n.Route.removeAny(e)
	if netlink.IsAbsent(err) {
		return nil
	}
	return err
}

func (n *AbsentRoute) remove(e *Engine) error {
	i, err := e.LinkIndex(n.Route.In, n.Route.Link)
	if err != nil {
		return err
	}
	_, err = e.Request(n.Route.In, netlink.Request{Type: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: n.Route.Message(i)})
	if refusesFormer(err) {
		return os.ErrNotExist // the route is back, or what it needs is gone
	}
	return err
}

func (a *AbsentRoute) changesEarlier() {}
