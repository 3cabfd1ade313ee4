package ruleset

import (
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// IPTables is the iptables command of one family, in table nat or, after Filter or Mangle, in another table.
type IPTables string

// Filter returns the command for table filter.
func (t IPTables) Filter() IPTables { return t + " filter" }

// Mangle returns the command for table mangle.
func (t IPTables) Mangle() IPTables { return t + " mangle" }

func (t IPTables) command(args ...string) []string {
	name, table, ok := strings.Cut(string(t), " ")
	if !ok {
		table = "nat"
	}
	return append([]string{name, "-w", "-t", table}, args...)
}

// Chain returns a chain. A chain that is not shared is removed with its attachment, also if somebody added rules to it.
func (t IPTables) Chain(name string, shared bool) *kernel.Command {
	c := &kernel.Command{
		Probe: t.command("-n", "-L", name), Do: t.command("-N", name), Undo: t.command("-X", name), IsShared: shared,
	}
	if !shared {
		c.Clear = t.command("-F", name)
	}
	return c
}

// Rule returns a rule at the end of its chain.
func (t IPTables) Rule(shared bool, chain string, args ...string) *kernel.Command {
	with := func(verb string) []string { return t.command(append([]string{verb, chain}, args...)...) }
	return &kernel.Command{Probe: with("-C"), Do: with("-A"), Undo: with("-D"), IsShared: shared}
}

// First returns a shared rule at the start of its chain, before the rules that exempt a subnet's own traffic from
// masquerade.
func (t IPTables) First(chain string, args ...string) *kernel.Command {
	c := t.Rule(true, chain, args...)
	c.Do = t.command(append([]string{"-I", chain}, args...)...)
	return c
}
