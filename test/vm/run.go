package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/vm/job"
)

// slowFactor is the factor for a test's time limits in a guest, whose processor is about that much slower.
const slowFactor = "4"

// lookPath finds a program, also in the sbin directories, which an ordinary PATH omits.
func lookPath(program string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, exec.ErrNotFound)
}

// runKernel runs the tests in one kernel and reports whether they passed.
func (r *runner) runKernel(ctx context.Context, k debian, i image, b testBinaries) (ok bool, err error) {
	for range maxBootAttempts {
		if ok, err = r.boot(ctx, k, i, b); !errors.Is(err, errBootPanic) && !errors.Is(err, errBreakpoint) {
			break
		}
		logf("kernel %s: %v", i.release, err)
	}
	return ok, err
}

func (r *runner) boot(ctx context.Context, k debian, i image, b testBinaries) (bool, error) {
	work, err := os.MkdirTemp("", "fairlead-vm-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	m := &machine{kernel: i, guest: b.guest, work: work, memory: r.memory, limit: r.limit}
	j := &job.Job{Release: i.release, Modules: i.modules(), Preload: preload(), Env: environment(k.series), Verbose: r.verbose || r.command != "", Tests: b.on(k.series)}
	if r.writable != "" {
		dir, err := filepath.Abs(r.writable)
		if err != nil {
			return false, err
		}
		j.Writable = []job.Share{{Tag: "writable", Dir: dir}}
	}
	logf("kernel %s: %d test binaries to run", i.release, len(j.Tests))
	start := time.Now()
	rc, err := m.run(ctx, j, os.Stdout)
	if err != nil {
		return false, err
	}
	logf("kernel %s: %s after %v", i.release, map[bool]string{true: "passed", false: "failed"}[rc == 0], time.Since(start).Round(time.Second))
	return rc == 0, r.gather(filepath.Join(m.out(), featuresFile))
}

const featuresFile = "features"

// environment returns the tests' environment: the caller's variables for tests, and variables that describe the guest.
func environment(series string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + os.Getenv("HOME"),
		"FAIRLEAD_SLOW=" + slowFactor,
		kerneltest.WhereVariable + "=" + series,
		kerneltest.FeaturesVariable + "=" + filepath.Join(job.Out, featuresFile),
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "UPDATE", "XDG_CACHE_HOME", "CI", "FAIRLEAD_BOUNDARIES", "FAIRLEAD_CONFORMANCE", "FAIRLEAD_E2E_DOCKER", "FAIRLEAD_E2E_LOGS",
			"FAIRLEAD_E2E_POD_NETWORKS", "FAIRLEAD_CONFORMANCE_CLUSTER", "FAIRLEAD_POLICY_API", "FAIRLEAD_SUITE_LOGS":
			env = append(env, v)
		}
	}
	return env
}

// gather appends the records of a guest's tests to the file set with -features.
func (r *runner) gather(file string) error {
	if r.features == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.features, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// summary prints which tests ran on which kernel. It reports failure if a test ran on none.
func (r *runner) summary(ok bool) (bool, error) {
	if r.features == "" {
		return ok, nil
	}
	records, err := kerneltest.ReadRecords(r.features)
	if err != nil {
		return false, err
	}
	text, nowhere, notRun := summarize(records)
	fmt.Print(text)
	fmt.Printf("%d tests run only on request and were not run\n", len(notRun))
	for _, n := range notRun {
		fmt.Println("not run:", n)
	}
	for _, n := range nowhere {
		fmt.Println("FAIL: ran on no kernel:", n)
	}
	return ok && len(nowhere) == 0, nil
}
