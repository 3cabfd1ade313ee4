package plugin

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// A GC starts when its list was made. A time in the future, or too long ago, is ignored. Nested calls get the same
// start.
func TestGCStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		listed, want time.Duration // before now
	}{
		"a second ago": {time.Second, time.Second},
		"to come":      {-time.Hour, 0},
		"minutes ago":  {10 * time.Minute, 10 * time.Minute}, // with many stale attachments, and a busy host
		"long ago":     {2 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listed := strconv.FormatInt(time.Now().Add(-c.listed).UnixNano(), 10)
			ctx, start := withGCStart(context.Background(), listed)
			if age := kernel.Uptime() - start; age < c.want || age > c.want+kerneltest.Slow(500*time.Millisecond) {
				t.Errorf("started %v ago, want %v", age, c.want)
			}
			if _, again := GCStart(ctx); again != start {
				t.Errorf("then %v, first %v", again, start)
			}
		})
	}
	if _, start := withGCStart(context.Background(), "no number"); start > kernel.Uptime() {
		t.Error("started in the future")
	}
}
