package doctor

import (
	"fmt"
	"strings"
	"unicode"
)

// A container chooses the names of links inside it, and who asks for an attachment may choose
// its interface's: the kernel takes nearly any byte. What is printed here is read on an
// operator's terminal, and pasted into a shell.

// harmless takes out of findings what a terminal or a shell would obey.
func harmless(f *Facts, all []Finding) []Finding {
	bad := hostile(f)
	for i := range all {
		x := &all[i]
		for _, name := range bad {
			if strings.Contains(x.Mend, name) {
				x.Mend = fmt.Sprintf("no command is shown, as a shell would take the name %q for more than a name", name)
			}
		}
		for _, text := range []*string{&x.Problem, &x.Follows, &x.Mend} {
			*text = printable(*text)
		}
	}
	return all
}

// printable has a mark in place of what moves a terminal's cursor, and the like.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// hostile are the names that a shell reads as more.
func hostile(f *Facts) (out []string) {
	note := func(names ...string) {
		for _, n := range names {
			if n != "" && strings.ContainsFunc(n, special) {
				out = append(out, n)
			}
		}
	}
	for _, a := range f.Attachments {
		note(a.IfName, a.Netns, a.Resolv)
		if a.Inside != nil {
			for _, l := range a.Inside.Links {
				note(l.Name)
			}
		}
	}
	if f.Host != nil {
		for _, l := range f.Host.Links {
			note(l.Name)
		}
	}
	return out
}

func special(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.,+@:/=", r)
}
