package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// NoRoute is a route that should not be there, as another table has it now. It
// comes back on removal, where its link still is.
type NoRoute struct {
	base
	Route Route
}

func (n *NoRoute) kind() string { return "noroute" }
func (n *NoRoute) Side() Side   { return n.Route.In }
func (n *NoRoute) Shared() bool { return false }
func (n *NoRoute) on() linkName { return n.Route.on() }

func (n *NoRoute) String() string {
	return strings.Replace(n.Route.String(), "route add", "route del", 1)
}

func (n *NoRoute) ensure(e *Engine) error {
	i, err := e.ifindex(n.Route.In, n.Route.Link)
	if err != nil {
		return err
	}
	return e.send(n, n.Route.In, request{unix.RTM_DELROUTE, 0, n.Route.body(i)}, func(r response) error {
		if r.err == nil {
			e.made(n)
		}
		return absentIsFine(r)
	})
}

func (n *NoRoute) diff(e *Engine) ([]string, error) {
	i, err := e.ifindex(n.Route.In, n.Route.Link)
	if err != nil {
		return nil, err
	}
	have, err := e.Routes(n.Route.In, family(n.Route.Dst.Addr()), n.Route.table())
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.Dst == n.Route.Dst && h.Index == i && h.Via == n.Route.Via && h.Metric == n.Route.Metric {
			return []string{fmt.Sprintf("is back in table %d", h.Table)}, nil
		}
	}
	return nil, nil
}

func (n *NoRoute) remove(e *Engine) error {
	i, err := e.ifindex(n.Route.In, n.Route.Link)
	if err != nil {
		return err
	}
	_, err = e.now(n.Route.In, request{unix.RTM_NEWROUTE, unix.NLM_F_CREATE | unix.NLM_F_EXCL, n.Route.body(i)})
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENETDOWN) {
		return os.ErrNotExist // there again, or its link is down: nothing to bring back
	}
	return err
}
