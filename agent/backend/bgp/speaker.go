package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	bgppacket "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/fairlead/fairlead/agent/backend"
)

// restartTime is the graceful restart time of RFC 4724: neighbours keep this node's routes for that long while its
// agent is down, and this node keeps the neighbours' routes. It must cover an upgrade.
const restartTime = 120 * time.Second

// deferralTime bounds how long a restarted speaker waits for its neighbours' routes before it announces its own
// (RFC 4724, section 4.1). A node announces only its own prefixes, so it need not wait for a neighbour that is down.
const deferralTime = time.Second

// Speaker is a running BGP speaker. It is safe for concurrent use.
type Speaker struct {
	server  *server.BgpServer
	stopped *atomic.Bool // the server logs nothing any more
	changed chan struct{}
	done    <-chan struct{}
	stop    context.CancelFunc
	began   time.Time

	mu         sync.Mutex
	conf       Config
	neighbours map[netip.Addr]Neighbour
	announced  map[netip.Prefix]bool
	states     map[netip.Addr]string    // session states, RFC 4271, section 8.2.2
	down       map[netip.Addr]time.Time // since when a neighbour has had no session
	ended      map[ended]bool           // neighbours that have sent all routes of a family since Start
	kept       []backend.Learned        // routes in the kernel from an earlier process
}

type ended struct {
	who netip.Addr
	six bool
}

// Start starts to listen; Set configures the rest. If only Set fails, Start returns the speaker with the error, because it
// works as far as Set could configure it. Kept are routes that an earlier process learned. They count as
// learned until neighbours have sent all their routes, or have had the time to.
func Start(ctx context.Context, c Config, kept []backend.Learned, log *slog.Logger) (*Speaker, error) {
	if log == nil {
		log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	stopped := &atomic.Bool{}
	s := &Speaker{
		server: server.NewBgpServer(server.LoggerOption(slog.New(stoppable{log.Handler(), stopped}), &slog.LevelVar{})), stopped: stopped, changed: make(chan struct{}, 1), began: time.Now(), kept: kept,
		neighbours: map[netip.Addr]Neighbour{}, announced: map[netip.Prefix]bool{}, states: map[netip.Addr]string{}, down: map[netip.Addr]time.Time{}, ended: map[ended]bool{},
	}
	go s.server.Serve()
	var listen []string
	for _, a := range c.Local {
		listen = append(listen, a.String())
	}
	err := s.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: c.ASN, RouterId: c.RouterID.String(), ListenPort: int32(cmp.Or(c.Port, defaultPort)), ListenAddresses: listen, UseMultiplePaths: true,
	}})
	if err != nil {
		s.server.Stop()
		return nil, fmt.Errorf("start BGP on %v, port %d (is another speaker running?): %w", c.Local, cmp.Or(c.Port, defaultPort), err)
	}
	s.conf = Config{ASN: c.ASN, RouterID: c.RouterID, Local: c.Local, Port: c.Port}
	watch, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, watch.Done()
	if err := s.watch(watch); err != nil {
		s.Stop()
		return nil, err
	}
	return s, s.Set(ctx, c)
}

// watch records the neighbours' updates and session states.
func (s *Speaker) watch(ctx context.Context) error {
	return s.server.WatchEvent(ctx, server.WatchEventMessageCallbacks{
		OnBestPath: func([]*apiutil.Path, time.Time) { s.hint() },
		OnPathEor: func(p *apiutil.Path, _ time.Time) {
			s.mu.Lock()
			s.ended[ended{p.PeerAddress, p.Family == bgppacket.RF_IPv6_UC}] = true
			s.mu.Unlock()
			s.hint()
		},
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			s.setState(e.Peer.State.NeighborAddress, e.Peer.State.SessionState)
			s.hint()
		},
	}, server.WatchBestPath(true), server.WatchEor(true), server.WatchPeer())
}

func (s *Speaker) setState(a netip.Addr, state bgppacket.FSMState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.neighbours[a]; !known {
		return
	}
	s.states[a] = strings.TrimPrefix(state.String(), "BGP_FSM_")
	if state == bgppacket.BGP_FSM_ESTABLISHED {
		delete(s.down, a)
	} else if s.down[a].IsZero() {
		s.down[a] = time.Now()
	}
}

func (s *Speaker) hint() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Changed returns a channel that receives a value whenever Learned or States may have changed.
func (s *Speaker) Changed() <-chan struct{} { return s.changed }

// Same reports whether Set can apply a configuration to this speaker. A new AS number or address needs a new speaker,
// because all sessions have to restart.
func (s *Speaker) Same(c Config) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conf.ASN == c.ASN && s.conf.RouterID == c.RouterID && s.conf.Port == c.Port && slices.Equal(s.conf.Local, c.Local)
}

// Set applies changed neighbours and prefixes. Sessions of unchanged neighbours continue.
func (s *Speaker) Set(ctx context.Context, c Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	wanted := map[netip.Addr]Neighbour{}
	for _, n := range c.Neighbours {
		wanted[n.Address] = n
	}
	for _, a := range slices.SortedFunc(maps.Keys(s.neighbours), netip.Addr.Compare) {
		if n, ok := wanted[a]; !ok || n != s.neighbours[a] {
			if err := s.server.DeletePeer(ctx, &api.DeletePeerRequest{Address: a.String()}); err != nil {
				errs = append(errs, fmt.Errorf("BGP neighbour %s: %w", a, err))
			}
			s.forget(a)
		}
	}
	for _, n := range c.Neighbours {
		if _, ok := s.neighbours[n.Address]; ok {
			continue
		}
		s.neighbours[n.Address], s.down[n.Address] = n, time.Now() // its first event may arrive before AddPeer returns
		if err := s.server.AddPeer(ctx, &api.AddPeerRequest{Peer: s.peer(n)}); err != nil {
			errs = append(errs, fmt.Errorf("BGP neighbour %s: %w", n.Address, err))
			s.forget(n.Address)
		}
	}
	return errors.Join(append(errs, s.advertise(c.Advertise))...)
}

func (s *Speaker) forget(a netip.Addr) {
	delete(s.neighbours, a)
	delete(s.states, a)
	delete(s.down, a)
	delete(s.ended, ended{a, false})
	delete(s.ended, ended{a, true})
}

func (s *Speaker) advertise(list []netip.Prefix) error {
	var errs []error
	wanted := map[netip.Prefix]bool{}
	for _, p := range list {
		wanted[p] = true
		if s.announced[p] {
			continue
		}
		path, err := s.path(p)
		if err == nil {
			_, err = s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("advertise %s: %w", p, err))
			continue
		}
		s.announced[p] = true
	}
	for _, p := range slices.SortedFunc(maps.Keys(s.announced), netip.Prefix.Compare) {
		if wanted[p] {
			continue
		}
		path, err := s.path(p)
		if err == nil {
			err = s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("withdraw %s: %w", p, err))
			continue
		}
		delete(s.announced, p)
	}
	return errors.Join(errs...)
}

// States returns the neighbours' session states under RFC 4271's names, such as "ESTABLISHED".
func (s *Speaker) States() map[netip.Addr]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[netip.Addr]string{}
	for a := range s.neighbours {
		out[a] = cmp.Or(s.states[a], "IDLE")
	}
	return out
}

// Lost returns the neighbours that have had no session for a time, sorted by address, and when the next one may join them;
// 0 means that all others have a session.
func (s *Speaker) Lost(after time.Duration) (lost []Neighbour, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, since := range s.down {
		if left := after - time.Since(since); left <= 0 {
			lost = append(lost, s.neighbours[a])
		} else if next == 0 || left < next {
			next = left
		}
	}
	slices.SortFunc(lost, func(a, b Neighbour) int { return a.Address.Compare(b.Address) })
	return lost, next
}

// Stop stops the speaker. Neighbours keep its routes for restartTime, because the next speaker announces them again.
func (s *Speaker) Stop() {
	if s.stop != nil {
		s.stop()
	}
	err := s.server.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: true})
	s.stopped.Store(err == nil) // else Stop logs an error, because it calls StopBgp, too
	s.server.Stop()             // everything else that the library started
}

// stoppable is a handler that drops every record once its flag is set.
type stoppable struct {
	slog.Handler
	stopped *atomic.Bool
}

func (h stoppable) Enabled(ctx context.Context, l slog.Level) bool {
	return !h.stopped.Load() && h.Handler.Enabled(ctx, l)
}

func (h stoppable) WithAttrs(list []slog.Attr) slog.Handler {
	return stoppable{h.Handler.WithAttrs(list), h.stopped}
}

func (h stoppable) WithGroup(name string) slog.Handler {
	return stoppable{h.Handler.WithGroup(name), h.stopped}
}
