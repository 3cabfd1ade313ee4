package compat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/reference"
)

const introduction = `# Compatibility with the reference plugins

<!-- Written by test/compat: make compat. Do not edit. -->

A test wrote this page. It runs both implementations with the same configurations, each on its own host (a network
namespace): the reference plugins ` + reference.PluginsVersion + `, and the reference runtime, ` + "`cnitool` and its `libcni` " + reference.CNIVersion + `.

To reproduce it, as root on Linux with iproute2, nftables and iptables:

    go test ./test/compat   # compares, and fails on a difference
    make compat             # writes this page

Cases that this machine's kernel cannot run use Debian's kernel in a virtual machine (` + "`make test-vm`" + `).
The reference programs are installed once, as Go modules, in the user's cache directory.

**Equal** means that the result is equal field by field. After each step, these are equal as well: the links, addresses,
routes of every type, rules, permanent neighbours, queueing disciplines, VLANs and relevant sysctls of host and
container; the nftables and iptables rules that neither implementation owns; which container reaches which, and from
which address; host-local's files; and the runtime's result cache. Random values do not count: hardware addresses and
the names of host ends. Every other difference is in the list below, with the value that each side must have. The test
fails if a side has another value, or if a listed difference disappears.

## Versions

Each cell is one life cycle: ADD, CHECK (since 0.4.0), STATUS and GC (since 1.1.0), DEL, DEL again, ADD, the end of the
container's namespace, and DEL twice (with Fairlead's runtime without ` + "`CNI_NETNS`" + `). It is compared with the
reference runtime running the reference plugins.

`

func (p *page) writeVersions(b *strings.Builder) {
	b.WriteString("| plugin | version |")
	for _, s := range sides()[1:] {
		fmt.Fprintf(b, " %v |", s)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(sides())-1) + "\n")
	for _, l := range lifecycles() {
		for _, v := range cni.Versions() {
			fmt.Fprintf(b, "| %s | %s |", l.name, v)
			for _, s := range sides()[1:] {
				fmt.Fprintf(b, " %s |", cmp.Or(p.versions[versionName(l.name, v, s)], notRun(l.needs)))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(`
The runtimes pass the same requests to plugins, except for two differences (` + "`capabilities`, GC" + `).
For every version, the test compares the standard input and the CNI variables of every call. A plugin that does nothing
else records them.

A node can be switched while containers run, in either direction. Each implementation respects and releases the
addresses that the other allocated, and its DEL removes the interfaces that the other created. DEL by Fairlead also
removes the reference's masquerade rules, host ports, firewall rules (both variants of iptables, and nftables), rules of
macspoofchk and the link of bandwidth (TestDelOfReferenceRules). "fairlead install" and "fairlead migrate" record
existing attachments. Their host ports are then respected, CHECK passes, and list, gc and doctor know them. Limits:

- DEL by the reference leaves Fairlead's rules. After a switch back, "fairlead gc --all" removes them.
- If Fairlead's host-device moved a device into a container, Fairlead must return it. The reference reads the device's
  name from the alias, which in Fairlead also contains the owner.
- Without "fairlead migrate", CHECK reports an attachment that the reference created as incomplete.
`)
}

func (p *page) writeKeys(b *strings.Builder) {
	b.WriteString(`
## Configuration keys

Each row is a configuration that tests one key with ADD, CHECK and DEL, at version 1.1.0 unless the row names another.
It compares Fairlead's runtime and plugins with the reference runtime and plugins. Every eighth row, and with
` + "`make compat`" + ` every row, also compares each runtime with the other side's plugins. **Rejected by both** means that the
reasons match, too. Numbers refer to the list of differences.
`)
	plugin := ""
	for _, k := range allKeys() {
		if k.plugin != plugin {
			plugin = k.plugin
			fmt.Fprintf(b, "\n### %s\n\n| key | case | outcome |\n|---|---|---|\n", plugin)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.key, k.with, cmp.Or(p.keys[k.name()], notRun(k.needs)))
	}
	b.WriteString(pciNote)
}

// notRun returns the outcome of a case that has not run on any kernel yet.
func notRun(feature string) string { return "needs " + feature + ": make compat runs it" }

const pciNote = "\n`pciBusID` and `runtimeConfig.deviceID` with an existing device need a PCI network card, which a test must not take\n" +
	"from the machine. The tests of plugins/link use a simulated sysfs instead.\n"

func (p *page) writeDifferences(b *strings.Builder) {
	b.WriteString("\n## Deliberate differences\n\n| | what | reference | Fairlead | why |\n|---|---|---|---|---|\n")
	for i, d := range p.differences {
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s |\n", i+1, d.what, d.reference, d.fairlead, d.why)
	}
}

// writeOddValues lists the differences that boundary values and random configurations showed.
func writeOddValues(b *strings.Builder) {
	b.WriteString(`
## Odd values

Every key gets its boundary values: absent, null, empty, the limits and one past them, negative numbers, other types, the
key in upper case and the key twice. Some cases begin with an object that other software created. If both implementations
accept a value, results and effects are equal; if both reject it, the reasons match. The exceptions:
`)
	for _, group := range []struct {
		title string
		lists [][]reason
	}{
		{"Only the reference accepts it", [][]reason{rejectedByFairlead(), boundaryRejectedByFairlead()}},
		{"Only Fairlead accepts it", [][]reason{rejectedByReference(), boundaryRejectedByReference()}},
	} {
		fmt.Fprintf(b, "\n**%s:**\n\n", group.title)
		for _, r := range slices.Concat(group.lists...) {
			fmt.Fprintf(b, "- %s\n", r.why)
		}
	}
	b.WriteString("\n**The effect differs:**\n\n")
	for _, e := range effects() {
		fmt.Fprintf(b, "- %s\n", e.why)
	}
}

func (p *page) writeErrors(b *strings.Builder) {
	b.WriteString(`
## Bad input

Both implementations print an error in JSON and exit with code 1. Where the reference reports error 999 (internal
error), Fairlead reports a specific code: 4 for the environment, 7 for the configuration, 100 for other errors. Without
` + "`CNI_COMMAND`" + `, a person started the plugin: both print what they are and exit with code 0.

| input | reference | Fairlead | |
|---|---|---|---|
`)
	b.WriteString(strings.Join(p.errors, "\n") + "\n")
}
