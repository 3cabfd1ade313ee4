// Program is every plugin, a runtime and a DHCP daemon, by its name: see package plugintest.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/plugins/ipam/dhcpd"
	"github.com/fairlead/fairlead/skel"
)

func main() {
	plugintest.Mark()
	name := filepath.Base(os.Args[0])
	switch name {
	case plugintest.Runtime:
		runtimeMain()
		return
	case plugintest.Daemon:
		fail(daemonMain())
		return
	}
	for _, p := range plugintest.Plugins() {
		if p.Name == name {
			skel.PluginMain(p)
			return
		}
	}
	fail(fmt.Errorf("no program has the name %s", name))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// daemonMain runs the DHCP daemon: "daemon SOCKET LEASES".
func daemonMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return dhcpd.Run(ctx, dhcpd.Options{
		SocketPath: os.Args[1], Leases: os.Args[2], ResendTimeout: 20 * time.Second, Log: func(line string) { fmt.Println(line) },
	}, os.Getenv)
}
