// Package crash kills a process, or makes it fail, at each of its system calls in turn. It then compares the whole
// machine after the recovery with its state before.
package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/internal/plugintest"
)

// testProgram is the path of the plugins, the runtime and the DHCP daemon.
var testProgram string

// TestMain runs the test binary as the program named by argv[0], or builds the program that the tests trace.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case policyAgentName:
		plugintest.Mark()
		policyAgentMain()
	case "tracee":
		plugintest.Mark()
		traceeMain()
		os.Exit(0)
	}
	os.Exit(plugintest.Run(m, &testProgram))
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
