package compat

import (
	"cmp"
	"fmt"
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
routes and relevant sysctls of host and container; which container reaches which, and from which address; host-local's
files; and the runtime's result cache. Random values do not count: hardware addresses and the names of host ends. Every
other difference is in the list below. The test fails if a listed difference disappears.

## Versions

Each cell is one life cycle: ADD, CHECK (since 0.4.0), STATUS and GC (since 1.1.0), DEL, DEL again, ADD, the end of the
container's namespace, and DEL twice (with Fairlead's runtime without ` + "`CNI_NETNS`" + `). It is compared with the reference runtime driving the reference plugins.

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
What the runtimes pass to plugins is equal but for two differences (` + "`capabilities`, GC" + `):
standard input and CNI variables of every call, for every version, recorded by
a plugin that does nothing else.

A node can be switched while containers run, in either direction:
addresses given by one are honoured and released by the other, and DEL removes
the interface that the other made. DEL by Fairlead removes what the reference
made besides: masquerade, host ports, firewall rules (iptables of both variants,
nftables) and bandwidth's link (TestInherited). "fairlead install" and
"fairlead migrate" note what stands, so that its host ports are honoured, CHECK
passes, and list, gc and doctor know it. What cannot be:

- The reference's DEL leaves Fairlead's rules: after a switch back
  "fairlead gc --all" removes them.
- What Fairlead's host-device moved must be given back by Fairlead: the reference
  reads the device's name from the alias, where ours keeps the owner too.
- Without "fairlead migrate", CHECK takes an attachment that the reference made
  for incomplete.
`)
}

func (p *page) writeKeys(b *strings.Builder) {
	b.WriteString(`
## Configuration keys

Each row is a configuration in which that key matters, at 1.1.0 unless it says
otherwise, through ADD, CHECK and DEL. "Equal" includes being refused by both.
Numbers lead to the list of differences.
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

// notRun is the outcome of what no kernel has run yet.
func notRun(feature string) string { return "needs " + feature + ": make compat runs it" }

const pciNote = "\n`pciBusID` and `runtimeConfig.deviceID` with a device that is there need a PCI network\n" +
	"card, which a test must not take from the machine; a made-up sysfs tests them in plugins/link.\n"

func (p *page) writeDifferences(b *strings.Builder) {
	b.WriteString("\n## Deliberate differences\n\n| | what | reference | Fairlead | why |\n|---|---|---|---|---|\n")
	for i, d := range p.differences {
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s |\n", i+1, d.what, d.theirs, d.ours, d.why)
	}
}

func (p *page) writeErrors(b *strings.Builder) {
	b.WriteString(`
## Bad input

Both print an error in JSON and end with exit code 1. Where the reference says
999 (internal error), Fairlead says which kind: 4 the environment, 7 the
configuration, 100 something else. Without ` + "`CNI_COMMAND`" + ` a plugin was started by
hand: both explain themselves and end with 0.

| input | reference | Fairlead | |
|---|---|---|---|
`)
	b.WriteString(strings.Join(p.errors, "\n") + "\n")
}
