package doctor

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
)

// A container chooses the names of links inside it, and whoever requests an attachment may choose its interface name.
// The kernel accepts nearly any byte. An operator reads the findings on a terminal and pastes commands into a shell.

// harmless removes from findings what a terminal or a shell would interpret.
func harmless(f *Facts, all []Finding) []Finding {
	bad := hostile(f)
	for i := range all {
		x := &all[i]
		for _, name := range bad {
			if strings.Contains(x.Fix, name) {
				x.Fix = fmt.Sprintf("the command is not printed, because a shell would interpret the name %q", name)
			}
		}
		for _, text := range []*string{&x.Problem, &x.Effect, &x.Fix} {
			*text = printable(*text)
		}
	}
	return all
}

// printable replaces control characters, such as those that move a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// hostile returns the names that a shell would not read as plain words.
func hostile(f *Facts) (out []string) {
	note := func(names ...string) {
		for _, n := range names {
			if n != "" && strings.ContainsFunc(n, special) {
				out = append(out, n)
			}
		}
	}
	for _, a := range f.Attachments {
		note(a.IfName, a.Netns)
		if filepath.IsAbs(a.Resolv) {
			note(a.Resolv)
		}
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
