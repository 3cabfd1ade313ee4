package kerneltest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// TestOptIn checks that a test without its environment variable is skipped and recorded.
func TestOptIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "features")
	t.Setenv(FeaturesVariable, file)
	t.Setenv(WhereVariable, "6.1")
	t.Setenv("FAIRLEAD_HOVERCRAFT", "")
	t.Run("without", func(t *testing.T) {
		OptIn(t, "FAIRLEAD_HOVERCRAFT")
		t.Error("it ran")
	})
	t.Setenv("FAIRLEAD_HOVERCRAFT", "eels")
	ran := false
	t.Run("with", func(t *testing.T) { ran = OptIn(t, "FAIRLEAD_HOVERCRAFT") == "eels" })
	have, err := ReadRecords(file)
	if err != nil || !ran || len(have) != 2 || !have[0].OptIn() || have[0].Ran || !have[1].Ran {
		t.Errorf("ran %v, noted %v (%v)", ran, have, err)
	}
}
