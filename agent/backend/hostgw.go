package backend

import (
	"fmt"

	"github.com/fairlead/fairlead/kernel"
)

// hostGW returns a route to each peer's blocks with the peer itself as the gateway. It needs no tunnel.
func hostGW(in *Input) (out kernel.Objects, problems []Problem) {
	for _, p := range in.Peers {
		routes, rest := in.plain(p)
		if len(rest) > 0 {
			problems = append(problems, Problem{p.Node.Name, fmt.Errorf("host-gw: no route to %s: no address of %s (%s) of that family is on this node's link (%s)",
				rest[0], p.Node.Name, words(p.Node), words(in.Self))})
		}
		out = append(out, routes...)
	}
	return out, problems
}
