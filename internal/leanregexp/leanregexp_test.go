package leanregexp_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/leanregexp"
)

func texts() []string {
	return []string{"", "a", "b", "ab", "aab", "abc", "net.ipv4.conf.eth0.arp_filter", "net.ipv6.conf.all.forwarding", "net/ipv4/tcp_syncookies",
		"kernel.shm_rmid_forced", "a\nb", "12", "x-y]", "aaaa", "{1}", "a{,2}", "ä€", "\t", "^$", "A_9"}
}

// Whatever both accept matches the same.
func agree(t *testing.T, expr, text string) {
	t.Helper()
	have, err := leanregexp.Compile(expr)
	if err != nil {
		return
	}
	want, err := regexp.Compile(expr)
	if err != nil {
		if !strings.Contains(err.Error(), "invalid UTF-8") && !strings.Contains(err.Error(), "too large") && !strings.Contains(err.Error(), "repeat count") &&
			!strings.Contains(err.Error(), "capture") {
			t.Errorf("%q is accepted here and not by regexp: %v", expr, err)
		}
		return
	}
	if h, w := have.MatchString(text), want.MatchString(text); h != w {
		t.Errorf("%q on %q: %v, and regexp says %v", expr, text, h, w)
	}
}

func exprs() []string {
	return []string{"", "a", "^a$", "a|b", "(a|b)+c?", "^net\\.ipv4\\.conf\\..*$", `^net\.ipv[46]\.conf\.[a-z0-9]+\.(arp_filter|forwarding)$`,
		".", "a*", "^a*$", "^(ab?)*$", `\d+`, `^\w+$`, `\W`, `[^a-z]`, "[]x]", "[a-]", `[\d_]+$`, "a{2}", "^a{2,3}b", "a{2,}", "a{,2}", "{1}", "a{1",
		"(?:a|)b", "(?P<n>a)b", `\Aa\z`, "^$", "a**", "a{2}{3}", "(", ")", "[a", "[b-a]", `\`, `\p{L}`, "(?i)a", `\b`, "+", "a|*", "[[:alpha:]]", `[\D]`, "a??", "^*", `\.`, `\/`, `\_`, `\€`, "(|a)*b", "(a*)*", "(a|b|)*$"}
}

func TestAsRegexp(t *testing.T) {
	t.Parallel()
	accepted := 0
	for _, e := range exprs() {
		if _, err := leanregexp.Compile(e); err == nil {
			accepted++
		}
		for _, s := range texts() {
			agree(t, e, s)
		}
	}
	if accepted < 30 {
		t.Errorf("only %d expressions are accepted", accepted)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"(a": "not closed", "[a": "not closed", "a**": "repeats", "*": "repeats nothing", `\`: "backslash", "(?i)a": "flags are not supported",
		`\pL`: `\p is not supported`, "a{3,2}": "smaller first", "a{9999}": "at most 1000", "[b-a]": "range", "a)": "unexpected", "((a{1000}){1000})": "too large",
	} {
		if _, err := leanregexp.Compile(expr); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "regular expression") {
			t.Errorf("%q: %v, want %q", expr, err, want)
		}
	}
}

func FuzzAsRegexp(f *testing.F) {
	for i, e := range exprs() {
		f.Add(e, texts()[i%len(texts())])
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(expr) < 100 && len(text) < 100 {
			agree(t, expr, text)
		}
	})
}
