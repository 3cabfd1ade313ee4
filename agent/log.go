package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// logReconcile logs a reconciliation's counts, and with --log-level debug every changed object.
func (a *Agent) logReconcile(ctx context.Context, w *desired.State, rep *reconcile.Report, began time.Time) {
	for _, c := range rep.Changes {
		a.log.Debug("changed", "object", c)
	}
	a.log.Log(ctx, level(rep), "reconciled", "applied", rep.Applied, "removed", rep.Removed, "resyncs", rep.Listed,
		"problems", len(w.Problems)+len(rep.Errors), "took", time.Since(began).Round(time.Microsecond))
}

// level returns the level of a reconciliation's line. logReady logs the errors, each once.
func level(r *reconcile.Report) slog.Level {
	if r.Applied+r.Removed > 0 {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// nothingLogged differs from every list of reasons, so the first state is logged.
const nothingLogged = "?"

// reasonsShown limits the reasons in one log line.
const reasonsShown = 3

// summary returns reasons for one log line.
func summary(list []error) string {
	var words []string
	for _, err := range list[:min(len(list), reasonsShown)] {
		words = append(words, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if more := len(list) - reasonsShown; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

// logUnreachable logs the peers that this node cannot reach when they change.
func (a *Agent) logUnreachable() {
	a.logChanged(&a.lastUnreachable, a.status.unreachable(), "all nodes can be reached", "cannot reach nodes")
}

// logNetworks logs the isolated networks that do not work on this node when they change.
func (a *Agent) logNetworks() {
	a.logChanged(&a.lastNetworks, a.status.networkErrors(""), "all isolated networks of this node work", "isolated networks of this node do not work")
}

// logChanged logs a list of errors if it differs from the last one.
func (a *Agent) logChanged(last *string, list []error, none, some string) {
	now := summary(list)
	if now == *last {
		return
	}
	if *last = now; now == "" {
		a.log.Info(none)
		return
	}
	a.log.Warn(some, "count", len(list), "why", now)
}

// logReady logs changes of readiness and the reasons: the same ones that /readyz and "fairlead agent status" show.
func (a *Agent) logReady() {
	now := summary(a.status.reasons())
	if now == a.lastReady {
		return
	}
	a.lastReady = now
	if now == "" {
		a.log.Info("ready", "node", a.status.node, "peers", a.status.state().Peers)
		if a.noNetwork() {
			a.log.Warn("the cluster has no default network: " + NoNetwork)
		}
		return
	}
	a.log.Warn("not ready", "node", a.status.node, "why", now)
}

// logInvalid logs the invalid keys in the store when they change.
func (a *Agent) logInvalid(w *desired.State) {
	sum := fmt.Sprint(len(w.Invalid), w.Invalid[:min(len(w.Invalid), maxListed)])
	if sum == a.lastInvalid || len(w.Invalid) == 0 && a.lastInvalid == "" {
		return
	}
	a.lastInvalid = sum
	if len(w.Invalid) == 0 {
		a.log.Info("all keys in the store are valid")
	}
	for _, what := range w.Invalid[:min(len(w.Invalid), reasonsShown)] {
		a.log.Warn("the store has an invalid entry", "entry", what)
	}
	if more := len(w.Invalid) - reasonsShown; more > 0 {
		a.log.Warn("the store has more invalid entries", "count", more, "see", "fairlead agent status")
	}
}

// NoNetwork tells the user how to create a default network.
const NoNetwork = `create it with "fairlead network create default --subnet 10.244.0.0/16 --nat", or set "network" in the agent's configuration and restart the agent`

// noNetwork reports whether the cluster is known to have no default network. The node is ready without one: isolated
// networks and whereabouts ranges do not need it.
func (a *Agent) noNetwork() (none bool) {
	a.storeCache.read(func(s *cluster.Snapshot) {
		none = len(s.Nodes) > 0 && s.Networks[cluster.DefaultNetwork] == nil && s.Problems[cluster.NetworkKey(cluster.DefaultNetwork)] == nil
	})
	return none
}
