package kernel

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command is an object that only a command can create: a rule of iptables, or nft conditions from a configuration. It
// runs no shell.
type Command struct {
	base
	Probe    []string `json:",omitzero"` // succeeds if the object exists
	Do       []string `json:",omitzero"` // creates it
	Undo     []string `json:",omitzero"` // removes it
	Clear    []string `json:",omitzero"` // empties it, if Undo fails because somebody else filled it
	IsShared bool     `json:",omitzero"`
}

func (c *Command) kind() string   { return "command" }
func (c *Command) Side() Side     { return Host }
func (c *Command) Shared() bool   { return c.IsShared }
func (c *Command) String() string { return strings.Join(c.Do, " ") }

func (c *Command) ensure(e *Engine) error {
	if err := e.flush(); err != nil {
		return err
	}
	if there, err := c.exists(e); there || err != nil {
		return err
	}
	if c.IsShared {
		defer e.lockHost()()
		if there, err := c.exists(e); there || err != nil {
			return err
		}
	}
	if err := e.run(c.Do); err != nil {
		if there, _ := c.exists(e); !there { // a concurrent ADD may have created it
			return err
		}
	}
	e.noteCreated(c)
	return nil
}

// lockHost makes concurrent ADDs create shared objects one after the other: iptables adds a rule again that exists. Any
// user can hold the lock of the host's namespace, so the wait has a short limit, and ADD goes on without the lock.
func (e *Engine) lockHost() (unlock func()) {
	ctx, cancel := context.WithTimeout(e.ctx, 2*lockPatience) // Lock leaves a half for the work
	defer cancel()
	if e.ns[Host].Lock(ctx) != nil {
		return func() {}
	}
	return e.ns[Host].Unlock
}

const lockPatience = 5 * time.Second

// exists runs the probe. A probe that fails for another reason is an error: an object wrongly taken as missing would be
// created twice or never removed.
func (c *Command) exists(e *Engine) (bool, error) {
	err := e.run(c.Probe)
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return e.hasExactRule(c.Probe)
	case errors.Is(err, exec.ErrNotFound): // then it cannot have created anything; creating fails with this error
		return false, nil
	case reportsAbsent(err):
		return false, nil
	case ended && exit.ExitCode() == 2 && !strings.Contains(err.Error(), "shared object"): // iptables: no such chain, or an unknown match
		return false, nil
	}
	return false, ofCommand(c.Probe, err)
}

func (c *Command) diff(e *Engine) ([]string, error) {
	there, err := c.exists(e)
	if there || err != nil {
		return nil, err
	}
	return []string{"is missing"}, nil
}

func (c *Command) remove(e *Engine) error {
	if len(c.Undo) == 0 {
		return nil
	}
	if there, err := c.exists(e); !there || err != nil {
		return err
	}
	err := e.run(c.Undo)
	if err != nil && len(c.Clear) > 0 && e.run(c.Clear) == nil {
		err = e.run(c.Undo)
	}
	if reportsAbsent(err) { // a concurrent DEL or GC removed it
		return nil
	}
	return ofCommand(c.Undo, err)
}

// ofCommand adds a command to its error.
func ofCommand(argv []string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
}

// hasExactRule reports whether the rule exists that a probe found. It asks ip6tables-legacy again: of its version 1.8.9,
// -C ignores the options of matches and targets, and finds port 80 when it is asked for port 81. -D compares everything,
// and with --test it deletes nothing.
func (e *Engine) hasExactRule(probe []string) (bool, error) {
	if len(probe) < 6 || !strings.HasPrefix(probe[0], "ip6tables") || probe[4] != "-C" { // ip6tables -w -t TABLE -C CHAIN ...
		return true, nil
	}
	path, err := FindProgram(probe[0])
	if err != nil {
		return false, err
	}
	if path = followLinks(programRoot, path); filepath.Base(path) != "xtables-legacy-multi" {
		return true, nil
	}
	rule := "*" + probe[3] + "\n-D"
	for _, word := range probe[5:] {
		rule += ` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
	}
	err = e.runWith(rule+"\nCOMMIT\n", []string{path, "ip6tables-restore", "-w", "--noflush", "--test"})
	if reportsAbsent(err) {
		return false, nil
	}
	return err == nil, ofCommand(probe, err)
}

// reportsAbsent reports whether a command failed because its object does not exist.
func reportsAbsent(err error) bool {
	exit, ended := errors.AsType[*exec.ExitError](err)
	return ended && exit.ExitCode() == 1 && slices.ContainsFunc(absentMessages(), func(message string) bool {
		return strings.Contains(err.Error(), message)
	})
}

// absentMessages returns the messages by which the commands report a missing object, or a chain of another kind with
// the same name.
func absentMessages() []string {
	return []string{"does a matching rule exist", "No chain/target/match by that name", "does not exist", "is incompatible", "No such file or directory",
		"ip6tables-restore: line 2 failed"} // see hasExactRule
}

// commandTimeout limits a command, in addition to the context. iptables waits for its lock without a limit.
const commandTimeout = time.Minute

// command returns a command that ends with the engine's context or after commandTimeout. The caller passes the
// command's error to done, which explains it if the command was ended.
func (e *Engine) command(path string, args ...string) (cmd *exec.Cmd, done func(error) error) {
	ctx, cancel := context.WithTimeoutCause(e.ctx, commandTimeout, fmt.Errorf("it did not end within %v: does another program hold the lock of iptables?", commandTimeout))
	cmd = exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // for a process that keeps the output open
	if programRoot != "" {
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: programRoot}
	}
	return cmd, func(err error) error {
		defer cancel()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // the command has succeeded
		}
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		return err
	}
}

// run runs a command. The error contains its output.
func (e *Engine) run(argv []string) error { return e.runWith("", argv) }

// runWith is run with an input for the command.
func (e *Engine) runWith(input string, argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("no command")
	}
	path, err := FindProgram(argv[0])
	if err != nil {
		return fmt.Errorf("%s is needed for this configuration and is not installed: %w", argv[0], err)
	}
	cmd, done := e.command(path, argv[1:]...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	out, err := cmd.CombinedOutput()
	if err = done(err); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(string(out)), err)
	}
	return nil
}
