package backend_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/fairlead/fairlead/agent/backend/wgd"
)

// TestMain lets the test binary run as a user-space WireGuard device.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == wgd.Command {
		if err := wgd.Run(context.Background(), os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
