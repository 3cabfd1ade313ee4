package compat

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Titles of steps.
const (
	beforeStep     = "before: namespace "
	afterFailedADD = "deleted after a failed ADD: "
)

// aloneProblems checks the transcript of our side of a case that only one side accepts, so there is nothing to compare
// it with. Every call after an ADD succeeds, the container has what the result says, and DEL leaves nothing.
func (t transcript) aloneProblems() (problems []string) {
	texts := map[string]string{}
	for _, e := range t {
		texts[e.title] = e.text
	}
	problem := func(e entry, text string) { problems = append(problems, e.title+": "+text+":\n"+e.text) }
	for i, e := range t {
		verb, of, _ := strings.Cut(e.title, " ")
		switch {
		case verb == "add" && e.text != "error":
			for _, missing := range missingInNamespace(e.text, t[i+1:].added(of)) {
				problem(e, "the container lacks "+missing)
			}
		case slices.Contains([]string{"check", "del", "gc", "status"}, verb) && e.text != "success":
			problem(e, "want success")
		case verb == "from" && e.text == noAnswer:
			problem(e, "want an answer")
		case strings.HasPrefix(e.title, "deleted: namespace "):
			if before, ok := texts[beforeStep+strings.TrimPrefix(e.title, "deleted: namespace ")]; ok && e.text != before {
				problem(e, "something is left: "+changes(before, e.text))
			} else if hostEnd.MatchString(e.text) {
				problem(e, "a host end is left")
			}
		case e.title == afterFailedADD+"container" && e.text != "":
			problem(e, "something is left")
		case e.title == "deleted: result cache" || e.title == "ended: result cache":
			if e.text != "" {
				problem(e, "want none")
			}
		case strings.HasPrefix(e.title, "deleted") && strings.HasSuffix(e.title, "addresses allocated") && allocatedLine.MatchString(e.text):
			problem(e, "an address is still allocated")
		}
	}
	return problems
}

// added returns the container's namespace after an ADD, or "" if the next step of the container is another one.
func (t transcript) added(of string) string {
	for _, e := range t {
		switch {
		case e.title == "added: namespace "+of:
			return e.text
		case strings.HasSuffix(e.title, " "+of) && !strings.HasPrefix(e.title, "add "):
			return ""
		}
	}
	return ""
}

var (
	hostEnd       = regexp.MustCompile(`(?m)^link (veth|bwp)X `)
	allocatedLine = regexp.MustCompile(`(?m)^net/[0-9a-f]+[.:]`)
	resultAddress = regexp.MustCompile(`(?m)^(?:ips\[\d+\]\.address|ip[46]\.ip) = "(.*)"$`)
	resultRoute   = regexp.MustCompile(`(?m)^.*routes\[\d+\]\.dst = "(.*)"$`)
)

// missingInNamespace returns the addresses and routes of a result that the container lacks.
func missingInNamespace(result, namespace string) (missing []string) {
	if namespace == "" { // it was not recorded
		return nil
	}
	for _, m := range resultAddress.FindAllStringSubmatch(result, -1) {
		if !strings.Contains("\n"+namespace, "\naddr "+m[1]+" dev ") {
			missing = append(missing, "address "+m[1])
		}
	}
	for _, m := range resultRoute.FindAllStringSubmatch(result, -1) {
		dst := m[1]
		if p, err := netip.ParsePrefix(dst); err == nil {
			dst = p.Masked().String() // the kernel accepts no host bits
		}
		line := regexp.QuoteMeta(strings.TrimSuffix(strings.TrimSuffix(dst, "/32"), "/128")) + " "
		switch m[1] {
		case "0.0.0.0/0":
			line = `default (via [0-9.]+ )?dev `
		case "::/0":
			line = `default (via [0-9a-f:]*:[0-9a-f:]* )dev `
		}
		if !regexp.MustCompile(`(?m)^route ` + line).MatchString(namespace) {
			missing = append(missing, "route "+m[1])
		}
	}
	return missing
}

// changes returns the lines that only one of two texts contains.
func changes(before, after string) string {
	return strings.TrimSuffix(kerneltest.Diff(before, after), "\n")
}
