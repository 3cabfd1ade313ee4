package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestIDsDiffer checks that equal lines, and several places of one line, are different mutants.
func TestIDsDiffer(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const text = "package p\n\nfunc f(a, b int) error {\n\tif a == 0 && b == 0 {\n\t\treturn nil\n\t}\n\tif a == 0 && b == 0 {\n\t\treturn nil\n\t}\n\treturn nil\n}\n"
	if err := os.WriteFile(filepath.Join(root, "p.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := mutantsOf(root, "p.go")
	if err != nil {
		t.Fatal(err)
	}
	ids, places := map[string]bool{}, map[int]bool{}
	for _, m := range list {
		ids[m.id()], places[m.from*100+len(m.with)] = true, true
	}
	if len(list) != 12 || len(ids) != len(list) || len(places) != len(list) {
		t.Errorf("%d mutants, %d IDs, %d places", len(list), len(ids), len(places))
	}
}
