package yamlerr_test

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/internal/yamlerr"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 1\nb: [":            "f:2:1: a value is missing, or a list or mapping that begins with [ or { is not closed",
		"a: 1\n  \n  a: 2":      `f:3:3: there is a second ":" on one line, or the line is indented too far: put a value that contains ":" in quotes`,
		"n: 1\nn: 2\nb: x":      `f:2:1: the key "n" occurs twice`,
		`{"n": 1, "n": 2}`:      `f:1:1: the key "n" occurs twice`,
		"a:\n  n: x\n  b: nope": `f:2:3: "x": want a whole number`,
		"a:\n  b: nope":         `f:2:3: "nope": want true or false`,
		"a:\n  s: [1]":          "f:2:3: want text",
		"a:\n  l: {b: 1}":       "f:2:3: want a list",
		"a: [1]":                "f:1:1: want keys with values",
	} {
		var into struct {
			A struct {
				N int
				B bool
				S string
				L []string
			}
		}
		err := yaml.Unmarshal([]byte(text), &into)
		if err == nil {
			var tree any // in which keys are compared
			err = yaml.Unmarshal([]byte(text), &tree)
		}
		if err == nil {
			t.Errorf("%q: no error", text)
		} else if got := yamlerr.Explain("f", []byte(text), err).Error(); got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
}
