package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// say logs what was done: every object with --log-level debug.
func (a *Agent) say(ctx context.Context, w *Wanted, rep *reconcile.Report, began time.Time) {
	for _, c := range rep.Changes {
		a.log.Debug("made", "object", c)
	}
	a.log.Log(ctx, level(rep), "looked", "made", rep.Applied, "removed", rep.Removed, "listed", rep.Listed,
		"problems", len(w.Problems)+len(rep.Errors), "took", time.Since(began).Round(time.Microsecond))
}

func level(r *reconcile.Report) slog.Level {
	if r.Applied+r.Removed+len(r.Errors) > 0 {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// saidNothing is no list of reasons.
const saidNothing = "?"

// reasonsShown of a cluster in which no node can be joined are enough.
const reasonsShown = 3

// sayReady logs whether containers here can reach others', and why not, when that
// has changed: the same that /readyz and "fairlead agent status" answer.
func (a *Agent) sayReady() {
	var words []string
	why := a.status.reasons()
	for _, err := range why[:min(len(why), reasonsShown)] {
		words = append(words, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if more := len(why) - reasonsShown; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	now := strings.Join(words, "; ")
	if now == a.said {
		return
	}
	a.said = now
	if now == "" {
		a.log.Info("ready", "node", a.status.node, "peers", a.status.state().Peers)
		if a.noNetwork() {
			a.log.Warn("the cluster has no default network: " + NoNetwork)
		}
		return
	}
	a.log.Warn("not ready", "node", a.status.node, "why", now)
}

// sayLeft logs what of the store is not heeded, when that has changed.
func (a *Agent) sayLeft(w *Wanted) {
	sum := fmt.Sprint(len(w.Left), w.Left[:min(len(w.Left), told)])
	if sum == a.saidLeft || len(w.Left) == 0 && a.saidLeft == "" {
		return
	}
	a.saidLeft = sum
	if len(w.Left) == 0 {
		a.log.Info("all of the store is heeded")
	}
	for _, what := range w.Left[:min(len(w.Left), reasonsShown)] {
		a.log.Warn("left out", "what", what)
	}
	if more := len(w.Left) - reasonsShown; more > 0 {
		a.log.Warn("left out", "what", fmt.Sprintf("%d more: see \"fairlead agent status\"", more))
	}
}

// NoNetwork is how a cluster without one gets its default network.
const NoNetwork = `make it with "fairlead network create default --subnet 10.244.0.0/16 --nat", or name it in the agent's configuration ("network"), and start the agent again`

// noNetwork tells whether the cluster is known to have no default network. Who wants
// isolated ones alone, or whereabouts' ranges, needs none: it is no reason not to be ready.
func (a *Agent) noNetwork() (none bool) {
	a.view.read(func(s *cluster.Snapshot) {
		none = len(s.Nodes) > 0 && s.Networks[cluster.DefaultNetwork] == nil && s.Problems[cluster.NetworkKey(cluster.DefaultNetwork)] == nil
	})
	return none
}
