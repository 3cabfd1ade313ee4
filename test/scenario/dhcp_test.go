package scenario

import (
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/internal/plugintest"
)

func dhcpNet(ts *testscript.TestScript, _ bool, args []string) {
	n := dhcptest.New(tb(ts), args[0], args[1])
	ts.Check(os.Symlink(n.LeaseFile(), ts.MkAbs("dnsmasq.leases")))
	n.Dnsmasq(args[2:]...)
}

func dhcpDaemon(ts *testscript.TestScript, _ bool, args []string) {
	running := ts.Value("daemon").(*runningDaemon)
	if args[0] == "start" {
		running.end = dhcptest.Daemon(tb(ts), filepath.Join(programs, plugintest.Daemon), ts.Getenv("DHCP_SOCKET"), ts.MkAbs("leases"))
		return
	}
	running.end()
}

// runningDaemon is the scenario's DHCP daemon while it runs.
type runningDaemon struct{ end func() }
