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

// gcStartKey is the context key for GCStart.
type gcStartKey struct{}

// tick is the resolution of a process's start time. GC must still collect what was added just before it started.
const tick = 10 * time.Millisecond

// maxGC bounds the age of a list of valid attachments. A wall clock that jumps forward by less makes the GC keep more.
const maxGC = time.Hour

// GCStart returns the uptime (kernel.Uptime, because the wall clock may jump) at which the context's collection
// started. The first call sets it to now. The returned context passes it on: all plugins of a list work with one list
// of valid attachments, which misses everything that was added after the list was made.
func GCStart(ctx context.Context) (context.Context, time.Duration) {
	if t, ok := ctx.Value(gcStartKey{}).(time.Duration); ok {
		return ctx, t
	}
	return withGCStart(ctx, os.Getenv(invoke.ListedVariable))
}

// withGCStart uses the time at which the runtime made the list of valid attachments, if the runtime sent it. Otherwise
// the list is at least as old as the process that read it from stdin, unless that is a long-running process.
func withGCStart(ctx context.Context, listed string) (context.Context, time.Duration) {
	t := kernel.Uptime()
	age := time.Duration(0)
	if ns, err := strconv.ParseInt(listed, 10, 64); err == nil {
		age = time.Since(time.Unix(0, ns))
	} else if start, err := ipamdir.ProcessStart(); err == nil {
		age = t - start - tick
	}
	if age > 0 && age < maxGC {
		t -= age
	}
	return context.WithValue(ctx, gcStartKey{}, t), t
}
