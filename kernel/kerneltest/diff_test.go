package kerneltest

import "testing"

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a\nb\n", "b\na", ""},
		{"a\nb\n", "a\nc\n", "- b\n+ c\n"},
		{"a\na\n", "a\n", "- a\n"},
		{"a\n", "ab\n", "- a\n+ ab\n"},
		{"", "\n", "+ \n"},
	} {
		if got := Diff(c.before, c.after); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.before, c.after, got, c.want)
		}
	}
}
