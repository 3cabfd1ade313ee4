package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/kernel"
)

// say logs what was done: every object with --verbose.
func (a *Agent) say(ctx context.Context, w *Wanted, rep *kernel.Report, began time.Time) {
	for _, c := range rep.Changes {
		a.log.Debug("made", "object", c)
	}
	a.log.Log(ctx, level(rep), "looked", "made", rep.Made, "removed", rep.Removed, "listed", rep.Looked,
		"problems", len(w.Problems)+len(rep.Errors), "took", time.Since(began).Round(time.Microsecond))
}

func level(r *kernel.Report) slog.Level {
	if r.Made+r.Removed+len(r.Errors) > 0 {
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
		return
	}
	a.log.Warn("not ready", "node", a.status.node, "why", now)
}
