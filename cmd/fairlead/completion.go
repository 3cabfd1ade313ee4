package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// completeCompletion adds "completion", which fails without a shell, and describes it.
func completeCompletion(root *cobra.Command) {
	var script strings.Builder
	stdout := root.OutOrStdout()
	root.SetOut(&script) // Cobra's commands for the shells keep this stream
	root.InitDefaultCompletionCmd()
	root.SetOut(stdout)
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Use, c.Short, c.GroupID = "completion SHELL", "print a completion script for a shell", "more"
		c.DisableFlagsInUseLine = true
		c.Long = "Completion prints a script that completes commands, flags, networks, namespaces and plugins in a shell."
		c.Example = "  fairlead completion bash > /etc/bash_completion.d/fairlead"
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			var shells []string
			for _, s := range c.Commands() {
				shells = append(shells, s.Name())
			}
			if len(args) > 0 {
				return &usageError{fmt.Sprintf("there is no completion script for %q", args[0]), "Want " + oneOf(shells) + "."}
			}
			if err := c.Help(); err != nil {
				return err
			}
			return &usageError{"completion needs the name of a shell", "Want " + oneOf(shells) + "."}
		}
		for _, s := range c.Commands() {
			if s.Name() == "powershell" { // Fairlead runs on Linux only
				c.RemoveCommand(s)
				continue
			}
			s.Args = want(0, 0)
			s.RunE = guarded(s.RunE, &script)
			s.Flags().VisitAll(sentence)
		}
	}
}

// guarded prints Cobra's script, which print writes, with a guard. The script evaluates the words of the command line, to
// expand variables and to remove quotes. Without the guard, Tab would run a command substitution that is being typed.
func guarded(print func(*cobra.Command, []string) error, script *strings.Builder) func(*cobra.Command, []string) error {
	guard := strings.NewReplacer(
		"    # Use eval to handle", "    [[ $requestComp == *[\\`\\(\\<\\>]* ]] && return\n    # Use eval to handle",
		// In fish, the words have lost their quotes.
		"    set -l results (eval", "    string match -qr '[`(<>;&|\\n]' -- $requestComp; and return\n    set -l results (eval")
	return func(c *cobra.Command, args []string) error {
		if err := print(c, args); err != nil {
			return err
		}
		_, err := guard.WriteString(c.OutOrStdout(), script.String())
		return err
	}
}
