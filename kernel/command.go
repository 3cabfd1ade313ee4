package kernel

import (
	"fmt"
	"os/exec"
	"strings"
)

// Command is an object that only a command can make: a rule of iptables, or of
// nft in words that a configuration gives. It runs no shell.
type Command struct {
	base
	Probe    []string `json:",omitzero"` // succeeds when the object is there
	Do       []string `json:",omitzero"` // makes it
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
	if run(c.Probe) == nil {
		return nil
	}
	if err := run(c.Do); err != nil && run(c.Probe) != nil { // another may have been first
		return err
	}
	e.made(c)
	return nil
}

func (c *Command) diff(*Engine) ([]string, error) {
	if run(c.Probe) != nil {
		return []string{"is missing"}, nil
	}
	return nil, nil
}

func (c *Command) remove(*Engine) error {
	if len(c.Undo) == 0 || run(c.Probe) != nil {
		return nil
	}
	return run(c.Undo)
}

// run runs a command and returns its words as the error.
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
		return fmt.Errorf("%s: %s: %w", strings.Join(argv, " "), strings.TrimSpace(string(out)), err)
	}
	return nil
}
