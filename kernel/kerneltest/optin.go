package kerneltest

import (
	"os"
	"strings"
	"testing"
)

// OptIn returns the value of the environment variable that asks for a test which takes too long for "make test". If the
// variable is not set, OptIn skips the test. It records both, and the summary of "make test" counts the tests that did
// not run.
func OptIn(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	note(t, variable, value != "")
	if value == "" {
		t.Skipf("not run: set %s", variable)
	}
	return value
}

// OptIn reports whether the record is of a test that runs only on request. Its Feature is the environment variable.
func (r Record) OptIn() bool { return strings.HasPrefix(r.Feature, "FAIRLEAD_") }
