package cni

import (
	"slices"
	"strings"
)

// Arg is one pair of CNI_ARGS.
type Arg struct{ Key, Value string }

// Args are the pairs of CNI_ARGS in order. They override static keys of the configuration; runtimeConfig and args.cni
// override them.
type Args []Arg

// argIgnoreUnknown makes a plugin accept unknown keys. Every runtime that passes keys of its own sets it.
const argIgnoreUnknown = "IgnoreUnknown"

// ParseArgs parses CNI_ARGS: "KEY=VALUE;KEY2=VALUE2". The specification, section 2, wants alphanumeric keys. A key with
// other characters is no error, as in the reference library: it may be another program's.
func ParseArgs(s string) (Args, error) {
	if s == "" {
		return nil, nil
	}
	var args Args
	for pair := range strings.SplitSeq(s, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || strings.Contains(value, "=") || strings.ContainsAny(pair, "\n\x00") {
			return nil, Errorf(CodeInvalidEnvironment, "CNI_ARGS: invalid pair %q: want KEY=VALUE;KEY2=VALUE2", pair)
		}
		args = append(args, Arg{key, value})
	}
	return args, nil
}

// Get returns a key's value, the last one if the key is repeated.
func (a Args) Get(key string) (value string, ok bool) {
	for _, arg := range a {
		if arg.Key == key {
			value, ok = arg.Value, true
		}
	}
	return value, ok
}

// Check rejects unknown keys, unless IgnoreUnknown=1 is set.
func (a Args) Check(known ...string) error {
	ignore, err := a.ignoreUnknown()
	if ignore || err != nil {
		return err
	}
	var unknown []string
	for _, arg := range a {
		if arg.Key != argIgnoreUnknown && !slices.Contains(known, arg.Key) {
			unknown = append(unknown, arg.Key+"="+arg.Value)
		}
	}
	if unknown == nil {
		return nil
	}
	want := "this plugin accepts none"
	if len(known) > 0 {
		want = "this plugin accepts " + strings.Join(known, ", ")
	}
	return Errorf(CodeInvalidEnvironment, "CNI_ARGS: unknown args %q: %s; with IgnoreUnknown=1 it ignores others", unknown, want)
}

func (a Args) ignoreUnknown() (bool, error) {
	value, ok := a.Get(argIgnoreUnknown)
	if !ok {
		return false, nil
	}
	switch strings.ToLower(value) {
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, Errorf(CodeInvalidEnvironment, "CNI_ARGS: IgnoreUnknown=%s: want 1, true, 0 or false", value)
}

// String formats the pairs for ParseArgs.
func (a Args) String() string {
	var b strings.Builder
	for i, arg := range a {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(arg.Key + "=" + arg.Value)
	}
	return b.String()
}
