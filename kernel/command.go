package kernel

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Command is an object that only a command can create: a rule of iptables, or nft conditions from a configuration. It
// runs no shell.
type Command struct {
	base
	Probe    []string `json:",omitzero"` // succeeds if the object exists
	Do       []string `json:",omitzero"` // creates it
	Undo     []string `json:",omitzero"` // removes it
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
	if there, err := c.exists(); there || err != nil {
		return err
	}
	if err := run(c.Do); err != nil {
		if there, _ := c.exists(); !there { // a concurrent ADD may have created it
			return err
		}
	}
	e.noteCreated(c)
	return nil
}

// exists runs the probe. A probe that fails for another reason is an error: an object wrongly taken as missing would be
// created twice or never removed.
func (c *Command) exists() (bool, error) {
	err := run(c.Probe)
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, exec.ErrNotFound): // then it cannot have created anything; creating fails with this error
		return false, nil
	case ended && exit.ExitCode() == 1 && slices.ContainsFunc(absentMessages(), func(w string) bool { return strings.Contains(err.Error(), w) }):
		return false, nil
	case ended && exit.ExitCode() == 2 && !strings.Contains(err.Error(), "shared object"): // iptables: no such chain, or an unknown match
		return false, nil
	}
	return false, ofCommand(c.Probe, err)
}

func (c *Command) diff(*Engine) ([]string, error) {
	there, err := c.exists()
	if there || err != nil {
		return nil, err
	}
	return []string{"is missing"}, nil
}

func (c *Command) remove(*Engine) error {
	if len(c.Undo) == 0 {
		return nil
	}
	if there, err := c.exists(); !there || err != nil {
		return err
	}
	return ofCommand(c.Undo, run(c.Undo))
}

// ofCommand adds a command to its error.
func ofCommand(argv []string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
}

// absentMessages returns the messages by which the commands report a missing object, or a chain of another kind with
// the same name.
func absentMessages() []string {
	return []string{"does a matching rule exist", "No chain/target/match by that name", "does not exist", "is incompatible", "No such file or directory"}
}

// run runs a command. The error contains its output.
func run(argv []string) error {
	if len(argv) == 0 {
		return fmt.Errorf("no command")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("%s is needed for this configuration and is not installed: %w", argv[0], err)
	}
	out, err := exec.Command(path, argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(string(out)), err)
	}
	return nil
}
