package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/repair"
)

// ruleKeeper restores the rules of this host's attachments after other software removed them, for example by "nft flush
// ruleset": host ports, masquerading, protection against forged addresses.
type ruleKeeper struct {
	dir  *attach.Dir
	log  *slog.Logger
	lost chan struct{} // a table is gone
}

const (
	ruleRetry = time.Second // pause before another attempt
	ruleTries = 300         // attempts after a loss: longer than an ADD takes, which may wait minutes for a DHCP server
)

func newRuleKeeper(dir *attach.Dir, log *slog.Logger) *ruleKeeper {
	return &ruleKeeper{dir, log, make(chan struct{}, 1)}
}

// notice requests a comparison if events say that the table with the rules is gone.
func (k *ruleKeeper) notice(h kernelEvents) {
	for _, ev := range h.events {
		if h.network == "" && ev.RemovesTable(kernel.Table) {
			select {
			case k.lost <- struct{}{}:
			default:
			}
			return
		}
	}
}

// run restores rules at the start, because they may have gone while no agent ran, and after each loss, until the context
// ends. It tries again those of attachments that are being added or removed.
func (k *ruleKeeper) run(ctx context.Context) {
	list := k.all()
	for try := 1; ; try++ {
		list = k.restore(list, try == ruleTries)
		var again <-chan time.Time
		if len(list) > 0 && try < ruleTries {
			again = time.After(ruleRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		case <-k.lost:
			list, try = k.all(), 0
		}
	}
}

func (k *ruleKeeper) all() []*attach.Record {
	list, err := k.dir.List("")
	if err != nil {
		k.log.Error("cannot look for lost rules of attachments", "error", err)
	}
	return list
}

// restore restores the rules of attachments, and returns those where it failed. It logs why if there is no next attempt.
func (k *ruleKeeper) restore(list []*attach.Record, last bool) (failed []*attach.Record) {
	attachments, rules := 0, 0
	for _, rec := range list {
		found, err := repair.Rules(k.dir, rec)
		restored := 0
		for _, f := range found {
			if err = errors.Join(err, f.Err); f.Err == nil {
				restored++
			}
		}
		if restored > 0 {
			attachments, rules = attachments+1, rules+restored
		}
		if err == nil {
			continue
		}
		failed = append(failed, rec)
		if e, ok := errors.AsType[*cni.Error](err); last && !(ok && e.Code == cni.CodeTryAgainLater) {
			k.log.Error("cannot restore rules that other software removed",
				"network", rec.Network, "container", rec.ContainerID, "interface", rec.IfName, "error", err)
		}
	}
	if rules > 0 {
		k.log.Warn("restored rules that other software removed", "attachments", attachments, "rules", rules)
	}
	return failed
}
