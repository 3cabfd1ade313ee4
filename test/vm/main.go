// Command vm runs test binaries as root in Debian kernels under QEMU's emulation, without KVM. It covers features that
// this machine's kernel lacks:
//
//	go run ./test/vm [-kernel 6.1,6.12] [-run PATTERN] [-v] [PACKAGE...]
//	go run ./test/vm -features FILE -lacking
//	go run ./test/vm [-kernel 6.12] -exec 'COMMAND ARGUMENT...'
//
// Without packages it runs the tests listed in suites. With -lacking it runs those of them that this machine's kernel
// had to skip. It prints the output of go test, and its exit code is 1 if a test failed. The guests see this machine's
// files, and write to memory only.
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
	if len(os.Args) == 6 && os.Args[1] == shareCommand {
		fail(serveShare(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
	}
	runtime.LockOSThread() // child processes end with the thread that started them
	var r runner
	flag.StringVar(&r.kernels, "kernel", "6.1,6.12", "comma-separated kernel series")
	flag.StringVar(&r.pattern, "run", "", "in the given packages, run only the tests that match this pattern")
	flag.StringVar(&r.command, "exec", "", "run this command in the guest instead of tests")
	flag.BoolVar(&r.verbose, "v", false, "print the tests' output while they run")
	flag.DurationVar(&r.limit, "timeout", 25*time.Minute, "time limit for each test binary")
	flag.StringVar(&r.features, "features", "", "file of records of which tests ran on which kernel; print a summary of it at the end")
	flag.BoolVar(&r.lacking, "lacking", false, "run only the tests that every run in the features file skipped")
	flag.StringVar(&r.writable, "write", "", "directory that the tests can write to, for UPDATE=1")
	flag.IntVar(&r.memory, "memory", 1024, "memory of a guest in MiB")
	flag.Parse()
	r.packages = flag.Args()
	if r.lacking && r.features == "" {
		fail(errors.New("-lacking needs the records of an earlier run of go test: set -features to their file"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := r.run(ctx)
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

// runner holds the command's options.
type runner struct {
	kernels, pattern, features, writable string
	command                              string
	verbose, lacking                     bool
	limit                                time.Duration
	memory                               int
	packages                             []string
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }

func (r *runner) run(ctx context.Context) (ok bool, err error) {
	chosen, err := chooseKernels(r.kernels)
	if err == nil {
		err = checkRequirements()
	}
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work) // the mounts are in the servers' own mount namespaces
	logf("building the test binaries")
	b, err := build(ctx, work, r)
	if err != nil {
		return false, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return false, fmt.Errorf("find the cache directory for kernels: %w", err)
	}
	ok = true
	for _, k := range chosen {
		i, err := fetch(ctx, k, filepath.Join(cache, "fairlead-test", "kernels"), logf)
		if err != nil {
			return false, err
		}
		passed, err := r.runKernel(ctx, k, i, b)
		if err != nil {
			return false, fmt.Errorf("kernel %s: %w", i.release, err)
		}
		ok = ok && passed
	}
	return r.summary(ok)
}

func chooseKernels(series string) (out []debian, err error) {
	for s := range strings.SplitSeq(series, ",") {
		known := false
		for _, k := range kernels() {
			if k.series == s {
				known, out = true, append(out, k)
			}
		}
		if !known {
			return nil, fmt.Errorf("-kernel %s: want 6.1 or 6.12, or both separated by a comma", s)
		}
	}
	return out, nil
}

// checkRequirements checks that all required programs are installed, before anything starts.
func checkRequirements() error {
	var errs []error
	if runtime.GOARCH != "amd64" {
		errs = append(errs, errors.New("the guests run this machine's programs, which must be for amd64, not "+runtime.GOARCH))
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("run it as root, because the guests read this machine's files"))
	}
	for program, pkg := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "depmod": "kmod", "xz": "xz-utils", "dpkg-deb": "dpkg", "apt-get": "apt"} {
		if _, err := lookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: it is in Debian's package %s", program, pkg))
		}
	}
	_, err := virtiofsd()
	return errors.Join(append(errs, err)...)
}
