package crash

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// seed returns the seed of the sample: always the same, unless FAIRLEAD_SEED sets another one.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("FAIRLEAD_SEED")
	if s == "" {
		return 5
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("FAIRLEAD_SEED: %v", err)
	}
	return n
}

// sampleSize returns about how many points of each scene the sample has: fewer in the short lane of an emulated
// kernel. FAIRLEAD_SAMPLE overrides it. `make crash` plays all points.
func sampleSize() int {
	if n, err := strconv.Atoi(os.Getenv("FAIRLEAD_SAMPLE")); err == nil && n > 0 {
		return n
	}
	if testing.Short() {
		return 1
	}
	return 2
}

// TestSampledPoints plays some points of every scene: every k-th one, starting at an offset chosen by the seed.
func TestSampledPoints(t *testing.T) {
	n := seed(t)
	t.Logf("FAIRLEAD_SEED=%d", n)
	rnd := rand.New(rand.NewPCG(n, n))
	for _, s := range scenes() {
		first := rnd.Uint64()
		if s.long || !selected(s.name, "FAIRLEAD_SCENE") {
			continue
		}
		t.Run(strings.ReplaceAll(s.name, "/", "-"), func(t *testing.T) { // no slash in the name: -run would split it
			t.Parallel()
			kerneltest.Needs(t, s.needs...)
			points := 0
			for _, c := range sweep(t, &s, 1, func(all []point) []point { return everyKth(all, first) }) {
				points += c.Points
			}
			if points == 0 && os.Getenv("FAIRLEAD_POINT") == "" {
				t.Error("no point was reached")
			}
		})
	}
}

// everyKth returns every k-th point. An operation that waits longer, on a busy machine, has more calls. If it was that
// one from which the points were learned, others may not reach them, and play an earlier call of the same class.
func everyKth(all []point, first uint64) (out []point) {
	k := max(len(all)/sampleSize(), 1)
	if os.Getenv("FAIRLEAD_POINT") != "" {
		k = 1
	}
	for i := int(first % uint64(k)); i < len(all); i += k {
		p := all[i]
		p.orEarlier = k > 1
		out = append(out, p)
	}
	return out
}
