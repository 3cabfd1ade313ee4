package main

import (
	"strings"
	"testing"
)

// TestTableEscapesControlCharacters prints names with control characters.
func TestTableEscapesControlCharacters(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := (table{{"NAME", "OWNER"}, {"evil\x1b[2J\x9b\a", "ü"}, {"", "\xff"}}).print(&b); err != nil {
		t.Fatal(err)
	}
	const want = "NAME        OWNER\nevil\uFFFD[2J\uFFFD\uFFFD  ü\n-           \uFFFD\n"
	if b.String() != want {
		t.Errorf("printed %q\nwant    %q", b.String(), want)
	}
}
