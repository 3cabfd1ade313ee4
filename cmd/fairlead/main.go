// Command fairlead is what people type: it attaches network namespaces to
// networks, checks and removes them, says what would happen, and lists what
// there is. Linked as cnitool it answers as the reference's cnitool does, linked
// as ovs it is that plugin.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/skel"
)

func main() {
	if p, ok := asPlugin(os.Args[0]); ok {
		skel.PluginMain(p)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newApp(), os.Args)
	stop()
	os.Exit(code)
}

// run is the program from its arguments to its exit code.
func run(ctx context.Context, a *app, argv []string) int {
	if filepath.Base(argv[0]) == "cnitool" {
		return cnitool(ctx, a, argv[1:])
	}
	root := a.root()
	root.SetArgs(argv[1:])
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		err = errors.Join(errInterrupted, err)
	}
	a.report(err)
	return exitCode(err)
}
