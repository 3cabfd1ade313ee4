package kerneltest

import "regexp"

// Masks match what two dumps of equal objects may differ in.
var (
	Timers   = regexp.MustCompile(` ?\w*_timer +[\d.]+`)                                   // of bridges and their ports
	Counters = regexp.MustCompile(`packets \d+ bytes \d+`)                                 // of rules
	Numbers  = regexp.MustCompile(`(?m)^\d+: |@if\d+|link-netnsid \d+`)                    // new ones for each link
	Carrier  = regexp.MustCompile(`NO-CARRIER,|,LOWER_UP|,M-DOWN| state [A-Z]+| linkdown`) // follows the other end
	Contents = regexp.MustCompile(`(?m): "(\\.|[^"\\])*"$`)                                // of Machine.Files
	// IPv6State matches lines that the kernel adds when a link gets a carrier, or later.
	IPv6State = regexp.MustCompile(`(?m)^.*(fe80::|ff00::/8).*\n`)
)

// Link returns a mask for the lines about one link. It leaves lines that only refer to it.
func Link(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(\d+: |.*\bdev )?` + regexp.QuoteMeta(name) + `\b.*\n`)
}

// Mask removes what the masks match from a dump.
func Mask(dump string, masks ...*regexp.Regexp) string {
	for _, m := range masks {
		dump = m.ReplaceAllString(dump, "")
	}
	return dump
}
