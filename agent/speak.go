package agent

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// speak has a BGP speaker tell neighbours what this node has, if the default network
// asks for one, and takes what they told.
func (a *Agent) speak(ctx context.Context, self *cluster.Node, h *Host) (err error) {
	c, wanted := a.speech(self)
	if !wanted {
		if a.speaker != nil {
			a.speaker.Stop()
			a.speaker = nil
		}
		return nil
	}
	switch {
	case a.speaker == nil:
		kept, err := a.keeper.learned(h.Underlay.Index)
		if err != nil {
			return err
		}
		if a.speaker, err = bgp.Start(ctx, c, kept, a.log.With("part", "bgp")); err != nil {
			return err
		}
		go a.listenTo(ctx, a.speaker)
	case !a.speaker.Same(c):
		if err := a.speaker.Set(ctx, c); err != nil {
			return err
		}
	}
	h.Learned, err = a.speaker.Learned()
	return err
}

// speech is what the speaker should be; false if there should be none.
func (a *Agent) speech(self *cluster.Node) (c bgp.Config, wanted bool) {
	a.view.read(func(s *cluster.Snapshot) {
		n := s.Networks[cluster.DefaultNetwork]
		if n == nil {
			return
		}
		for _, b := range backend.Configured(n) {
			if b.Type != cluster.BGP {
				continue
			}
			tell := s.BlocksOf(n.Name, self.Name)
			for _, x := range s.Addresses {
				if x.Network == n.Name && x.Node == self.Name {
					tell = append(tell, netip.PrefixFrom(x.IP, x.IP.BitLen()))
				}
			}
			var nodes []*cluster.Node
			for _, name := range s.NodeNames() {
				nodes = append(nodes, s.Nodes[name])
			}
			c, wanted = bgp.Configure(b, self, nodes, tell), true
		}
	})
	return c, wanted
}

// listenTo has the loop look when neighbours told something.
func (a *Agent) listenTo(ctx context.Context, s *bgp.Speaker) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-s.Changed():
			if !ok {
				return
			}
			a.kick()
		}
	}
}

// learned are the routes by the underlay that an earlier agent of this host left:
// they count until neighbours have told all again.
func (k *keeper) learned(underlay int) (out []backend.Learned, _ error) {
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := k.engine.Routes(kernel.Host, fam, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			l := backend.Learned{Dst: r.Dst}
			switch {
			case r.Protocol != backend.Protocol || r.Index != underlay:
				continue
			case len(r.Hops) > 0:
				for _, h := range r.Hops {
					l.Via = append(l.Via, h.Via)
				}
			case r.Via.IsValid():
				l.Via = []netip.Addr{r.Via}
			}
			if len(l.Via) > 0 {
				out = append(out, l)
			}
		}
	}
	return out, nil
}
