package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// output is standard output. It keeps the first error, because help and reports of several lines are printed without a
// check.
type output struct {
	io.Writer
	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// format is the form in which a command prints its result.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

func formats() []string {
	return []string{string(formatTable), string(formatWide), string(formatJSON), string(formatYAML)}
}

// formatFlags adds --output and --json.
func (a *app) formatFlags(flags *pflag.FlagSet) {
	flags.VarP(&choice{to: (*string)(&a.format), of: formats()}, "output", "o", "Print the result as a table, a wide table, JSON or YAML: table, wide, json or yaml.")
	flags.BoolFunc("json", "Print the result and errors as JSON; short for --output json.", func(value string) error {
		on, err := strconv.ParseBool(value)
		switch {
		case err != nil:
			return errors.New("want true or false")
		case on:
			a.format = formatJSON
		case a.format == formatJSON:
			a.format = ""
		}
		return nil
	})
}

// structured reports whether the output is for a program: JSON or YAML.
func (a *app) structured() bool { return a.format == formatJSON || a.format == formatYAML }

// choice is a flag with a fixed set of values.
type choice struct {
	to *string
	of []string
}

func (c *choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

func (*choice) Type() string { return "string" }

// Set accepts one of the values.
func (c *choice) Set(value string) error {
	for _, v := range c.of {
		if v == value {
			*c.to = value
			return nil
		}
	}
	return fmt.Errorf("want %s", oneOf(c.of))
}

// oneOf returns "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// printData prints a value as YAML if the user asked for it, and as JSON otherwise.
func (a *app) printData(v any) error {
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice && list.IsNil() {
		v = []any{} // not null
	}
	if a.format == formatYAML {
		return printYAML(a.stdout, v)
	}
	raw, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(raw))
	return err
}

// printDataOr prints a value as JSON or YAML if the user asked for one, and the text otherwise.
func (a *app) printDataOr(v any, text string) error {
	if a.structured() {
		return a.printData(v)
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}

// printLine prints a value as one line of JSON, or as one YAML document.
func (a *app) printLine(v any) error {
	if a.format == formatYAML {
		if _, err := fmt.Fprintln(a.stdout, "---"); err != nil {
			return err
		}
		return printYAML(a.stdout, v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(raw))
	return err
}

// printYAML prints a value as YAML with the keys of its JSON form.
func printYAML(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(escapeControls(raw), &tree); err != nil {
		return err
	}
	blockStyle(&tree)
	out, err := yaml.Marshal(&tree)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// escapeControls escapes the characters in JSON that YAML does not allow as they are (YAML 1.2, section 5.1). The kernel
// allows some of them in names of interfaces.
func escapeControls(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for _, r := range string(raw) {
		switch {
		case r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff:
			out = fmt.Appendf(out, "\\u%04x", r)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// blockStyle removes the braces and quotes of JSON.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// say tells a person what was done. A program reads the exit code instead.
func (a *app) say(format string, args ...any) {
	if w := a.progressStream(); w != nil {
		fmt.Fprintf(w, format+"\n", args...)
	}
}

// printChanged prints what a command changed, such as "created blue". A command that changes several things calls it for
// each: its output then has a line of JSON, or a YAML document, for each.
func (a *app) printChanged(what, name string) error {
	if a.structured() {
		return a.printLine(map[string]string{what: name})
	}
	_, err := fmt.Fprintf(a.stdout, "%s %s\n", what, name)
	return err
}
