// Package nft encodes and decodes nftables: rules, sets, chains and tables, in the
// text of nft(8) on one side and in netlink messages on the other.
//
// The compiler and the decoder share the tables of fields, data types, verdicts,
// families and hooks, so a rule that Fairlead writes reads back as it was written.
// The package sends nothing; package kernel does.
//
//   - family.go: families and hooks
//   - types.go, names.go, settype.go: data types, their values, ranges of values, and the types of sets
//   - fields.go: the fields of a packet that a rule can load
//   - verdict.go: verdicts
//   - compile.go, expr.go: from the text of a rule to expressions
//   - decode.go, xtables.go: from expressions to steps, also of other software's rules
//   - ruleset.go: the decoded ruleset
//   - part.go, element.go: messages that add, delete and name parts of a ruleset
//   - elements.go, elements_parse.go: messages with many elements of a set
//
// Sources: nft(8), linux/netfilter/nf_tables.h. The oldest kernel is 5.14.
package nft
