package compat

import (
	"regexp"
	"strings"
	"sync/atomic"
)

// difference is one that we want. Lines that show it are not compared.
type difference struct {
	what, ours, theirs, why string
	where                   *regexp.Regexp // the case and its step; nil: in all
	lines                   *regexp.Regexp // nil: it shows in no snapshot
	seen                    *atomic.Bool
}

// forget takes the lines of wanted differences out of both texts.
func forget(where, want, have string) (string, string) {
	for _, d := range differences {
		if d.lines == nil || d.where != nil && !d.where.MatchString(where) {
			continue
		}
		a, inA := cut(want, d.lines)
		b, inB := cut(have, d.lines)
		if inA != inB {
			d.seen.Store(true)
		}
		want, have = a, b
	}
	return want, have
}

// cut parts a text into the lines that do not match and those that do.
func cut(text string, lines *regexp.Regexp) (rest, matched string) {
	var keep, out []string
	for _, l := range strings.Split(text, "\n") {
		if lines.MatchString(l) {
			out = append(out, l)
		} else {
			keep = append(keep, l)
		}
	}
	return strings.Join(keep, "\n"), strings.Join(out, "\n")
}

// differences are all that we want.
var differences = []difference{
	{
		what: "router advertisements in the container", theirs: "accepted", ours: "`accept_ra=0` when IPAM gives IPv6 addresses",
		why:   "a neighbour on the network could otherwise give the container a default route (CVE-2020-10749)",
		lines: regexp.MustCompile(`^sysctl net/ipv6/conf/eth0/accept_ra:`), seen: &atomic.Bool{},
	},
	{
		what: "the addresses in loopback's result before 1.0.0", theirs: `none at 0.1.0 and 0.2.0, then with ` + "`\"version\": \"\"`", ours: "there, with version 4 and 6",
		why:   "the specification allows only 4 and 6",
		where: regexp.MustCompile(`^loopback 0\.`), lines: regexp.MustCompile(`"(version|ip4|ip6|ip)":|"dns": {}|^ +},?$`), seen: &atomic.Bool{},
	},
	{
		what: "a second DEL of host-device", theirs: "an error: the interface is not in the container", ours: "success",
		why:   "the specification wants DEL to succeed when there is nothing left to remove",
		where: regexp.MustCompile(`^host-device [0-9.]+: (del a|collected|deleted|ended|del of)`), lines: regexp.MustCompile(`^(error|success)$`), seen: &atomic.Bool{},
	},
	{
		what: "DEL of host-device after its namespace ended", theirs: "an error; the runtime keeps the attachment in its cache", ours: "success",
		why:   "the specification wants DEL to succeed when there is nothing left to remove",
		where: regexp.MustCompile(`^host-device [0-9.]+: ended: result cache`), lines: regexp.MustCompile(``), seen: &atomic.Bool{},
	},
	{
		what: "a device that host-device gives back", theirs: "down", ours: "up, if it was up before ADD",
		why:   "the host gets its device back as it was",
		where: regexp.MustCompile(`^host-device [0-9.]+: (collected|deleted)`), lines: regexp.MustCompile(`^link dev0`), seen: &atomic.Bool{},
	},
}
