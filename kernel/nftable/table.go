// Package nftable keeps one nftables table equal to a desired table. It compares and changes elements, sets, chains and
// rules one by one. One transaction changes what decides about packets.
//
// Plugins do not link it: they add a few objects by package kernel. This package is for tables with thousands of
// elements that change all the time, such as that of network policy.
//
//   - table.go: the desired table, and the names of what changed in it
//   - programmer.go: Apply and Sync
//   - update.go: what Apply compares
//   - read.go, read_sets.go: the kernel's table, and how it differs, for Sync
//   - plan.go: the requests that change one state to another, in steps
//   - commit.go: transactions
//   - replace.go: everything at once, without an open moment
//   - accepts.go: whether the kernel has what a rule uses
//   - counters.go: what rules have counted
//   - state.go: a table with keys as the kernel has them
//
// # What the kernel accepts
//
// One write can be one transaction of any size: the send buffer grows to it. Linux 6.18 accepts 16 MB with 8,000
// messages. An attribute has at most 64 KiB, so thousands of elements need several messages. No other change of any
// ruleset happens while the kernel handles a transaction, so that those which can be divided are.
//
// A transaction is atomic for rules, and for the elements of hash tables. The kernel lets packets search the new elements
// of a set of intervals some microseconds later: nf_tables_commit (linux/net/netfilter/nf_tables_api.c) starts the new
// generation, and then calls nft_set_commit_update.
package nftable

// Table is the desired content of a table.
type Table struct {
	Family, Name string
	Sets         map[string]*Set   // by name
	Chains       map[string]*Chain // by name
}

// Set is a set or, if its type has a value, a map.
type Set struct {
	// Type is the type as nft(8) writes it: "ipv4_addr", "inet_proto . inet_service", "ipv4_addr : verdict".
	Type string
	// Interval allows ranges in keys: "10.0.0.0-10.0.0.255", "tcp . 80-90". Prefixes have no short form.
	Interval bool
	// Elements has the value for each key: "goto in-1" in a map to verdicts, "" in a set. The ranges of an interval set
	// do not overlap.
	Elements map[string]string
}

// Chain is a chain with its rules in order.
type Chain struct {
	// Hook makes it a base chain: "type filter hook forward priority -10". Its policy is accept.
	Hook  string
	Rules []Rule
}

// Rule is a rule as nft(8) writes it, with its comment.
type Rule struct {
	Text    string
	Comment string
}

// New returns an empty table.
func New(family, name string) *Table {
	return &Table{Family: family, Name: name, Sets: map[string]*Set{}, Chains: map[string]*Chain{}}
}

// Changes are the names of what may differ between two versions of a table. A name that the table no longer has is
// deleted.
type Changes struct {
	Chains map[string]bool
	Sets   map[string]bool            // new, deleted or of another type
	Keys   map[string]map[string]bool // of elements by set, in sets that exist in both
}

// Empty reports whether nothing may differ.
func (c Changes) Empty() bool { return len(c.Chains)+len(c.Sets)+len(c.Keys) == 0 }
