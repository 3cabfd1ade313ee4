package plugin

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
)

// A GC began when its list was made; what a list says that is from the future, or
// too old, is not believed. Whatever is called on the way has the same beginning.
func TestGCBegan(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(-d).UnixNano(), 10) }
	for name, c := range map[string]struct {
		listed string
		want   time.Duration // before now
	}{
		"a second ago": {ago(time.Second), time.Second},
		"to come":      {ago(-time.Hour), 0},
		"long ago":     {ago(time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, began := withBegan(context.Background(), c.listed)
			if age := kernel.Uptime() - began; age < c.want || age > c.want+500*time.Millisecond {
				t.Errorf("began %v ago, want %v", age, c.want)
			}
			if _, again := GCBegan(ctx); again != began {
				t.Errorf("then %v, first %v", again, began)
			}
		})
	}
	if _, began := withBegan(context.Background(), "no number"); began > kernel.Uptime() {
		t.Error("began in the future")
	}
}
