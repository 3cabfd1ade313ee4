package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestInterruptedInput checks that a signal ends a command that waits for its standard input.
func TestInterruptedInput(t *testing.T) {
	t.Parallel()
	for _, argv := range [][]string{{"policy", "check", "-f", "-"}, {"validate", "-"}, {"pod", "setup", "x", "--netns", "/nowhere", "--pod", "-"}} {
		cmd := exec.Command("fairlead", argv...)
		out, in, err := os.Pipe()
		must(t, err)
		cmd.Stdin = out
		must(t, cmd.Start())
		_, err = in.WriteString("#")
		must(t, err)
		kerneltest.Until(t, func() bool { n, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ); return err == nil && n == 0 })
		must(t, cmd.Process.Signal(syscall.SIGINT))
		_ = cmd.Wait()
		in.Close()
		out.Close()
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
			t.Errorf("fairlead %s: %v", strings.Join(argv, " "), cmd.ProcessState)
		}
	}
}

// TestSecondSignal checks that a second signal ends a command whose plugin hangs while the command undoes its work.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	host(t)
	conf, bin := t.TempDir(), t.TempDir()
	calls := filepath.Join(conf, "calls")
	must(t, os.Chmod(write(t, bin, "hangs", "#!/bin/sh\necho $CNI_COMMAND $$ >>"+calls+"\nexec sleep 60\n"), 0o755))
	write(t, conf, "n.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"hangs"}]}`)
	kerneltest.Run(t, "ip", "netns", "add", "web")
	cmd := exec.Command("fairlead", "add", "n", "web")
	cmd.Env = append(os.Environ(), "NETCONFPATH="+conf, "CNI_PATH="+bin)
	must(t, cmd.Start())
	called := func(verb string) func() bool {
		return func() bool { raw, _ := os.ReadFile(calls); return strings.Contains(string(raw), verb) }
	}
	kerneltest.Until(t, called("ADD"))
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	kerneltest.Until(t, called("DEL"))
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("%v", cmd.ProcessState)
	}
	raw, err := os.ReadFile(calls)
	must(t, err)
	for line := range strings.Lines(string(raw)) { // the plugin's processes
		if pid, err := strconv.Atoi(strings.Fields(line)[1]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestStatusOfMissingPlugin checks the exit code of commands that ask whether an ADD would work.
func TestStatusOfMissingPlugin(t *testing.T) {
	t.Parallel()
	conf := t.TempDir()
	env := map[string]string{"NETCONFPATH": conf, "CNI_PATH": t.TempDir()}
	if code, _, errs := call(env, "fairlead", "pod", "status"); code != exitUnavailable || !strings.Contains(errs, "no net configurations found") {
		t.Errorf("without a network: exit code %d: %s", code, errs)
	}
	write(t, conf, "n.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"nowhere-to-be-found"}]}`)
	for _, argv := range [][]string{{"pod", "status"}, {"status", "n"}, {"pod", "status", "-o", "json"}} {
		if code, out, errs := call(env, append([]string{"fairlead"}, argv...)...); code != exitUnavailable {
			t.Errorf("fairlead %s: exit code %d: %s%s", strings.Join(argv, " "), code, out, errs)
		}
	}
}

// TestAddUndone verifies that add removes what it had created if the terminal is gone (SIGHUP) or if nobody reads its
// result. nohup makes add ignore SIGHUP.
func TestAddUndone(t *testing.T) {
	t.Parallel()
	host(t)
	conf, bin := t.TempDir(), t.TempDir()
	calls, end := filepath.Join(conf, "calls"), filepath.Join(conf, "end")
	must(t, os.Chmod(write(t, bin, "waits", "#!/bin/sh\necho $CNI_COMMAND >>"+calls+"\nwhile test $CNI_COMMAND = ADD -a ! -e "+end+"; do sleep 0.01; done\necho '{}'\n"), 0o755))
	write(t, conf, "n.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"waits"}]}`)
	kerneltest.Run(t, "ip", "netns", "add", "web")
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP) // under nohup, the commands would inherit that SIGHUP is ignored
	defer signal.Stop(handled)
	for _, c := range []struct {
		how, shell string
		hangUp     bool
		undone     bool
		code       int
	}{
		{"a terminal that is gone", "exec fairlead add n web", true, true, exitInterrupted},
		{"nohup", "trap '' HUP; exec fairlead add n web", true, false, exitOK},
		{"a pipe without a reader", "exec fairlead add n web | true; exit ${PIPESTATUS[0]}", false, true, exitFailed},
	} {
		_ = os.RemoveAll(calls)
		_ = os.RemoveAll(end)
		cmd := exec.Command("bash", "-c", c.shell)
		cmd.Env = append(os.Environ(), "NETCONFPATH="+conf, "CNI_PATH="+bin)
		must(t, cmd.Start())
		called := func() string { raw, _ := os.ReadFile(calls); return string(raw) }
		kerneltest.Until(t, func() bool { return called() != "" })
		if c.hangUp {
			must(t, cmd.Process.Signal(syscall.SIGHUP))
		}
		if c.code != exitInterrupted {
			write(t, conf, "end", "")
		}
		stuck := time.AfterFunc(kerneltest.Slow(time.Minute), func() { write(t, conf, "end", "") })
		_ = cmd.Wait()
		stuck.Stop()
		if code := cmd.ProcessState.ExitCode(); code != c.code || strings.Contains(called(), "DEL") != c.undone {
			t.Errorf("%s: %v, calls %q, want exit code %d, undone %t", c.how, cmd.ProcessState, called(), c.code, c.undone)
		}
	}
}
