// Command vm runs test binaries as root in Debian kernels under QEMU's emulation, without KVM. It covers features that
// this machine's kernel lacks:
//
//	go run ./test/vm [-kernel 6.1,6.12] [-run PATTERN] [-v] [PACKAGE...]
//	go run ./test/vm -features FILE -lacking
//	go run ./test/vm [-kernel 6.12] -exec 'COMMAND ARGUMENT...'
//
// Without packages it runs the tests listed in suites. With -lacking it runs those of them that this machine's kernel
// had to skip, and the engine's tests. It prints the output of go test, and its exit code is 1 if a test failed. The
// guests see this machine's files, and write to memory only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 6 && os.Args[1] == shareWord {
		fail(serveShare(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
	}
	runtime.LockOSThread() // child processes end with the thread that started them
	var l lane
	flag.StringVar(&l.kernels, "kernel", "6.1,6.12", "the kernels' series")
	flag.StringVar(&l.pattern, "run", "", "run tests whose names match this, of the packages named")
	flag.StringVar(&l.command, "exec", "", "run this command there, and no tests")
	flag.BoolVar(&l.verbose, "v", false, "print what tests print, as they run")
	flag.DurationVar(&l.limit, "timeout", 25*time.Minute, "time that one kernel's tests may take")
	flag.StringVar(&l.features, "features", "", "file of what ran where so far; a summary is printed at the end")
	flag.BoolVar(&l.lacking, "lacking", false, "of the tests, run those alone that all runs in the features file skipped, and the engine's")
	flag.StringVar(&l.writable, "write", "", "directory that the tests may write to: for UPDATE=1")
	flag.IntVar(&l.memory, "memory", 1024, "of a guest, in MiB")
	flag.Parse()
	l.packages = flag.Args()
	if l.lacking && l.features == "" {
		fail(errors.New("-lacking goes by what a run of go test noted: name that file by -features"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := l.run(ctx)
	stop()
	fail(err)
	if !ok {
		os.Exit(1)
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(2)
	}
}

// lane holds the command's options.
type lane struct {
	kernels, pattern, features, writable string
	command                              string
	verbose, lacking                     bool
	limit                                time.Duration
	memory                               int
	packages                             []string
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }

func (l *lane) run(ctx context.Context) (ok bool, err error) {
	chosen, err := choose(l.kernels)
	if err == nil {
		err = complete()
	}
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work) // the mounts are in the servers' own mount namespaces
	say("building the test binaries")
	b, err := build(ctx, work, l)
	if err != nil {
		return false, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return false, fmt.Errorf("find a place for the kernels: %w", err)
	}
	ok = true
	for _, k := range chosen {
		i, err := fetch(ctx, k, filepath.Join(cache, "fairlead-test", "kernels"), say)
		if err != nil {
			return false, err
		}
		passed, err := l.one(ctx, k, i, b)
		if err != nil {
			return false, fmt.Errorf("kernel %s: %w", i.release, err)
		}
		ok = ok && passed
	}
	return l.summary(ok)
}

func choose(series string) (out []debian, err error) {
	for s := range strings.SplitSeq(series, ",") {
		known := false
		for _, k := range kernels() {
			if k.series == s {
				known, out = true, append(out, k)
			}
		}
		if !known {
			return nil, fmt.Errorf("-kernel %s: want 6.1 or 6.12, or both with a comma", s)
		}
	}
	return out, nil
}

// complete checks that all required programs are installed, before anything starts.
func complete() error {
	var errs []error
	if runtime.GOARCH != "amd64" {
		errs = append(errs, errors.New("the guests see this machine's programs, which have to be for amd64, not "+runtime.GOARCH))
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("run it as root: the guests read this machine's files"))
	}
	for program, pkg := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "depmod": "kmod", "xz": "xz-utils", "dpkg-deb": "dpkg", "apt-get": "apt"} {
		if _, err := look(program); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: it is in Debian's package %s", program, pkg))
		}
	}
	_, err := virtiofsd()
	return errors.Join(append(errs, err)...)
}
