// Command fairlead is the command line of Fairlead: it attaches network namespaces to networks, verifies, repairs and
// removes attachments, and runs the node agent. Under the name cnitool it behaves as the reference cnitool does, and under
// the name ovs it is that plugin.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/skel"
)

func main() {
	if p, ok := builtin.Named(os.Args[0]); ok {
		skel.PluginMain(p)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	context.AfterFunc(ctx, stop) // the second signal ends the program
	a := newApp()
	a.stdin = interruptible{ctx, os.Stdin}
	code := run(ctx, a, os.Args)
	stop()
	os.Exit(code)
}

// endSignals returns the signals that end a command, which then undoes its work. SIGHUP comes when a terminal or an ssh
// connection is gone. nohup ignores it.
func endSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// run runs the program with its arguments and returns its exit code.
func run(ctx context.Context, a *app, argv []string) int {
	if filepath.Base(argv[0]) == "cnitool" {
		return cnitool(ctx, a, argv[1:])
	}
	out := &output{Writer: a.stdout}
	a.stdout = out
	root := a.root()
	root.SetArgs(argv[1:])
	err := a.checkDirectories()
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if _, silent := errors.AsType[silentError](err); (err == nil || silent) && out.failed() != nil {
		err = out.failed() // nobody can read the report
	}
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		err = errors.Join(errInterrupted, err)
	}
	err = adviseRoot(err, os.Geteuid())
	if asksForJSON(argv) { // also after an argument that is not valid
		a.format = formatJSON
	}
	a.report(err)
	return exitCode(err)
}

// asksForJSON reports whether the arguments have --json or --output json, in any form.
func asksForJSON(argv []string) bool {
	for i, a := range argv {
		switch a {
		case "--json", "-ojson", "-o=json", "--output=json":
			return true
		case "json":
			if i > 0 && (argv[i-1] == "-o" || argv[i-1] == "--output") {
				return true
			}
		}
	}
	return false
}

// checkDirectories rejects relative directories of state: the state would depend on the working directory.
func (a *app) checkDirectories() error {
	for _, name := range []string{attach.RootVariable, "FAIRLEAD_LIB"} {
		if dir := a.getenv(name); dir != "" && !filepath.IsAbs(dir) {
			return &usageError{name + "=" + dir + ": want an absolute path", "Type: fairlead help environment"}
		}
	}
	return nil
}

// interruptible is a reader that stops waiting when the context ends. A read from a terminal has no other end.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data := make([]byte, len(p))
		n, err := r.in.Read(data)
		done <- result{data[:n], err}
	}()
	select {
	case got := <-done:
		return copy(p, got.data), got.err
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	}
}
