package kernel

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestRecordFormat checks that the kinds and keys of objects in a record stay as they are:
// attachments of an earlier version must remain readable.
func TestRecordFormat(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, o := range prototypes() {
		lines = append(lines, o.kind()+": "+strings.Join(recordKeys(reflect.TypeOf(o).Elem()), " "))
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const file = "testdata/record.golden"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v: the record's keys are\n%s\nwant\n%s", err, got, want)
	}
}

// recordKeys returns the JSON keys of a type; a struct of this package is followed by its own keys.
func recordKeys(t reflect.Type) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		in := f.Type
		for in.Kind() == reflect.Slice || in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		if in.Kind() == reflect.Struct && in.PkgPath() == t.PkgPath() {
			name += "(" + strings.Join(recordKeys(in), " ") + ")"
		}
		out = append(out, name)
	}
	return out
}
