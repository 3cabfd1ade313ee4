package kerneltest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFeatures checks that the presence or absence of each feature can be determined on this kernel.
func TestFeatures(t *testing.T) {
	t.Parallel()
	for _, f := range features() {
		t.Logf("%s: %v", f.name, Has(t, f.name))
	}
	if !Has(t, "tap") { // every tested kernel has it
		t.Error("no tap")
	}
}

func TestNeeds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "features")
	t.Setenv(FeaturesVariable, file)
	t.Setenv(WhereVariable, "6.1")
	t.Run("inner", func(t *testing.T) { Needs(t, "tap") })
	t.Run("skipped", func(t *testing.T) { note(t, "a hovercraft", false) })
	have, err := ReadRecords(file)
	const pkg = "github.com/fairlead/fairlead/kernel/kerneltest"
	want := []Record{{"tap", pkg, "TestNeeds/inner", "6.1", true}, {"a hovercraft", pkg, "TestNeeds/skipped", "6.1", false}}
	if err != nil || !slices.Equal(have, want) {
		t.Errorf("noted %v (%v), want %v", have, err, want)
	}
}

func TestReadRecordsRefusesOthers(t *testing.T) {
	t.Parallel()
	if _, err := ReadRecords("feature_test.go"); err == nil || !strings.Contains(err.Error(), "not a record") {
		t.Errorf("a Go file read as records: %v", err)
	}
	if r, err := ReadRecords(filepath.Join(t.TempDir(), "none")); len(r) != 0 || err != nil {
		t.Errorf("a file that is not there: %v, %v", r, err)
	}
}

func TestSlowScalesDurations(t *testing.T) {
	for value, want := range map[string]time.Duration{"": time.Second, "16": 16 * time.Second, "0": time.Second, "x": time.Second} {
		t.Setenv("FAIRLEAD_SLOW", value)
		if got := Slow(time.Second); got != want {
			t.Errorf("FAIRLEAD_SLOW=%s: %v", value, got)
		}
	}
}
