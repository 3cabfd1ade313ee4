package main

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestYAMLOfAnyText prints every character that a name may have, and reads it again.
func TestYAMLOfAnyText(t *testing.T) {
	t.Parallel()
	var all []string
	for r := rune(1); r <= 0xff; r++ {
		all = append(all, fmt.Sprintf("a%cb", r))
	}
	all = append(all, "\ufeff", "\ufffe", "\uffff", "\u2028", "𝄞", "- x: [y]", "null", "1.0", "yes")
	want := map[string][]string{"names": all}
	var out bytes.Buffer
	must(t, printYAML(&out, want))
	got := map[string][]string{}
	must(t, yaml.Unmarshal(out.Bytes(), &got))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}
