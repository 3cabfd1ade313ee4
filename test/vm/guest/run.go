package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/test/vm/job"
)

// prepare sets up the machine for ordinary programs. It prints errors and continues: the tests show whether they
// matter.
func prepare(j *job.Job, out io.Writer) {
	for _, v := range j.Env {
		name, value, _ := strings.Cut(v, "=")
		_ = os.Setenv(name, value)
	}
	files := syscall.Rlimit{Cur: 65536, Max: 65536}
	err := errors.Join(
		syscall.Sethostname([]byte("vm")),
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files),
		makeDirs([]string{"/dev/net"}),
		ifAbsent(syscall.Mknod("/dev/net/tun", syscall.S_IFCHR|0o600, 10<<8|200)),
		links(map[string]string{"/dev/fd": "", "/dev/stdin": "/0", "/dev/stdout": "/1", "/dev/stderr": "/2"}),
		command("ip", "link", "set", "lo", "up"),
	)
	if len(j.Preload) > 0 {
		err = errors.Join(err, command("modprobe", append([]string{"-a"}, j.Preload...)...))
	}
	if err != nil {
		fmt.Fprintln(out, "vm: prepare the machine:", err)
	}
}

// links creates the links to /proc/self/fd, as udev does.
func links(names map[string]string) (err error) {
	for name, target := range names {
		err = errors.Join(err, ifAbsent(os.Symlink("/proc/self/fd"+target, name)))
	}
	return err
}

func ifAbsent(err error) error {
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

func command(name string, args ...string) error {
	if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}

// run runs the tests one after another and prints the same lines as go test.
func run(j *job.Job, out io.Writer) (rc int) {
	for _, t := range j.Tests {
		start := time.Now()
		var text bytes.Buffer
		cmd := exec.Command(t.Argv[0], t.Argv[1:]...)
		cmd.Dir, cmd.Env = t.Dir, append(os.Environ(), t.Env...)
		cmd.Stdout, cmd.Stderr = &text, &text
		if j.Verbose {
			cmd.Stdout, cmd.Stderr = out, out
		}
		err := cmd.Run()
		elapsed := time.Since(start).Seconds()
		if err == nil {
			fmt.Fprintf(out, "ok  \t%s\t%.3fs\n", t.Package, elapsed)
			continue
		}
		rc = 1
		if cmd.ProcessState == nil {
			fmt.Fprintln(&text, err)
		}
		_, _ = out.Write(text.Bytes())
		fmt.Fprintf(out, "FAIL\t%s\t%.3fs\n", t.Package, elapsed)
	}
	return rc
}
