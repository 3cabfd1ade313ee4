package compat

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// transcript records the steps of one side and their effects.
type transcript []entry

type entry struct{ title, text string }

// recorder writes the transcript of a host.
type recorder struct {
	*host
	keep     string // text of the case's configuration: its values are not replaced as random ones
	firstErr string // text of the first error
	transcript
}

func (r *recorder) note(title, text string) {
	r.transcript = append(r.transcript, entry{title, r.normalize(text, r.keep)})
}

// do calls the runtime and records the result. For an error it records only the word "error", because messages differ.
func (r *recorder) do(c call) (ok bool) {
	r.T.Helper()
	out, err := r.call(c)
	title := c.verb + " " + c.netns + c.of
	switch {
	case err != nil:
		r.T.Logf("%v: %s: %v", r.side, title, err)
		r.note(title, "error")
		if r.firstErr == "" {
			r.firstErr = err.Error()
		}
	case c.verb == "add":
		r.note(title, jsonLines(out))
	default:
		r.note(title, "success")
	}
	return err == nil
}

// recordState records namespaces and state files.
func (r *recorder) recordState(when string, names ...string) {
	r.T.Helper()
	for _, n := range names {
		r.note(when+": namespace "+n, r.snapshot(n))
	}
	r.note(when+": addresses allocated", r.files("ipam", func(s string) string { return s }))
	r.note(when+": result cache", r.files("lib/cni/results", cacheFile))
}

// files returns the names and contents of the files below one of the host's directories.
func (r *recorder) files(dir string, show func(string) string) string {
	var out []string
	root := filepath.Join(r.Dir, dir)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case d.Name() == ".fairlead":
			return filepath.SkipDir
		case d.IsDir() || d.Name() == "lock":
			return nil
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		out = append(out, name+": "+show(string(data)))
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	for name := range r.Netns {
		for i := range out {
			out[i] = strings.ReplaceAll(out[i], r.id(call{netns: name}), "ID-"+name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// cacheFile returns a file of the result cache with its configuration decoded from base64.
func cacheFile(text string) string {
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "no JSON: " + text
	}
	if config, err := base64.StdEncoding.DecodeString(fmt.Sprint(v["config"])); err == nil {
		v["config"] = string(config)
	}
	return "\n" + strings.Join(flatten("", v), "\n")
}

// jsonLines returns JSON with one line for each value: its path and the value. So a difference is a number of lines.
func jsonLines(text string) string {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "no JSON: " + text
	}
	return strings.Join(flatten("", v), "\n")
}

func flatten(path string, v any) (lines []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			lines = append(lines, flatten(strings.TrimPrefix(path+"."+key, "."), v[key])...)
		}
	case []any:
		for i := range v {
			lines = append(lines, flatten(fmt.Sprintf("%s[%d]", path, i), v[i])...)
		}
	}
	if lines == nil {
		raw, _ := json.Marshal(v) // it was decoded from JSON
		return []string{path + " = " + string(raw)}
	}
	return lines
}

// compare returns the differences from the reference implementation's transcript, and the outcome for the page.
func (p *page) compare(name string, want, have transcript) (problems []string, outcome string) {
	found := map[int]bool{}
	for i, w := range want {
		if i >= len(have) || have[i].title != w.title {
			return append(problems, fmt.Sprintf("step %q is missing", w.title)), "differs"
		}
		a, b := p.removeDifferences(name, w.title, w.text, have[i].text, found)
		if a != b {
			problems = append(problems, w.title+":\n"+cmp.Or(kerneltest.Diff(a, b), "the same lines in another order\n"))
		} else if (w.text == "error") != (have[i].text == "error") && strings.HasPrefix(w.title, "add ") {
			// A deliberate difference: all later steps differ because of it, so they are checked without the reference.
			if problems = append(problems, have.aloneProblems()...); len(problems) > 0 {
				return problems, "differs"
			}
			return nil, p.outcome(name, found)
		}
	}
	if len(have) > len(want) {
		problems = append(problems, fmt.Sprintf("unexpected step %q", have[len(want)].title))
	}
	if len(problems) > 0 {
		return problems, "differs"
	}
	return nil, p.outcome(name, found)
}
