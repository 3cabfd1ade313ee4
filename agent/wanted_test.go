package agent

import (
	"slices"
	"testing"
	"time"
)

// TestWantedNetworks checks that a network is wanted until it has addresses here, or for some minutes.
func TestWantedNetworks(t *testing.T) {
	t.Parallel()
	var w wantedNetworks
	w.remove("red")
	if len(w.names()) != 0 || !w.add("red") || w.add("red") || !w.add("blue") || !w.add("old") {
		t.Errorf("wanted are %v", w.names())
	}
	w.until["old"] = time.Now().Add(-time.Second)
	if got := w.names(); !slices.Equal(got, []string{"blue", "red"}) {
		t.Errorf("wanted are %v", got)
	}
	w.remove("blue")
	if got := w.names(); !slices.Equal(got, []string{"red"}) || !w.add("blue") {
		t.Errorf("wanted are %v", got)
	}
}
