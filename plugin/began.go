package plugin

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/cni/invoke"
	ipamdir "github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
)

// beganKey marks a context: see GCBegan.
type beganKey struct{}

// tick is how much too early a process's start may be said to be: what was added
// just before a GC began is to be collected.
const tick = 10 * time.Millisecond

// GCBegan is when the collection began that a context belongs to, as kernel.Uptime
// counts (the time of day may jump), now if it is the first that asks, and a
// context that says so to whatever it calls: the plugins of a list, one after the
// other, have one list of valid attachments, and what is added after that was made
// is in none of them.
func GCBegan(ctx context.Context) (context.Context, time.Duration) {
	if t, ok := ctx.Value(beganKey{}).(time.Duration); ok {
		return ctx, t
	}
	return withBegan(ctx, os.Getenv(invoke.ListedVariable))
}

// withBegan goes by when the list of valid attachments was made, if the runtime
// says so. If not, the list is at least as old as the process that got it on
// stdin, unless that is one which lives on and serves many calls.
func withBegan(ctx context.Context, listed string) (context.Context, time.Duration) {
	t := kernel.Uptime()
	age := time.Duration(0)
	if ns, err := strconv.ParseInt(listed, 10, 64); err == nil {
		age = time.Since(time.Unix(0, ns))
	} else if start, err := ipamdir.ProcessStart(); err == nil {
		age = t - start - tick
	}
	if age > 0 && age < time.Minute {
		t -= age
	}
	return context.WithValue(ctx, beganKey{}, t), t
}
