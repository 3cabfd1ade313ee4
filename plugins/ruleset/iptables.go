package ruleset

import (
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// IPTables is one family's command, in the nat table or, of Filter, in that.
type IPTables string

// Filter is the command in the table filter.
func (t IPTables) Filter() IPTables { return t + " filter" }

func (t IPTables) command(args ...string) []string {
	name, table, ok := strings.Cut(string(t), " ")
	if !ok {
		table = "nat"
	}
	return append([]string{name, "-w", "-t", table}, args...)
}

// Chain is a chain; an attachment's own goes with it.
func (t IPTables) Chain(name string, shared bool) *kernel.Command {
	return &kernel.Command{
		Probe: t.command("-n", "-L", name), Do: t.command("-N", name), Undo: t.command("-X", name), IsShared: shared,
	}
}

// Rule is a rule at the end of its chain.
func (t IPTables) Rule(shared bool, chain string, words ...string) *kernel.Command {
	with := func(verb string) []string { return t.command(append([]string{verb, chain}, words...)...) }
	return &kernel.Command{Probe: with("-C"), Do: with("-A"), Undo: with("-D"), IsShared: shared}
}

// First is a shared rule at the head of its chain: before the rules by which
// masquerade passes over a subnet's own traffic.
func (t IPTables) First(chain string, words ...string) *kernel.Command {
	c := t.Rule(true, chain, words...)
	c.Do = t.command(append([]string{"-I", chain}, words...)...)
	return c
}
