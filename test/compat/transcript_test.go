package compat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// transcript records the steps of one side and their effects.
type transcript []entry

type entry struct{ title, text string }

// recorder writes the transcript of a host.
type recorder struct {
	*host
	keep string // what is not to be taken for random: the case's own configuration
	said string // the first error, in its own words
	transcript
}

func (r *recorder) note(title, text string) {
	r.transcript = append(r.transcript, entry{title, r.normal(text, r.keep)})
}

// do calls the runtime and records the result. Of an error it records only that there is one, because messages differ.
func (r *recorder) do(c call) (ok bool) {
	r.t.Helper()
	out, err := r.call(c)
	title := c.verb + " " + c.netns + c.of
	switch {
	case err != nil:
		r.t.Logf("%v: %s: %v", r.side, title, err)
		r.note(title, "error")
		if r.said == "" {
			r.said = err.Error()
		}
	case c.verb == "add":
		r.note(title, indented(out))
	default:
		r.note(title, "success")
	}
	return err == nil
}

// look records namespaces and state files.
func (r *recorder) look(when string, names ...string) {
	r.t.Helper()
	for _, n := range names {
		r.note(when+": namespace "+n, r.snapshot(n))
	}
	r.note(when+": addresses held", r.files("ipam", func(s string) string { return s }))
	r.note(when+": result cache", r.files("lib/cni/results", cacheFile))
}

// files are the files below one of the host's directories, with their content.
func (r *recorder) files(dir string, show func(string) string) string {
	var out []string
	root := filepath.Join(r.dir, dir)
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
		r.t.Fatal(err)
	}
	for name := range r.netns {
		for i := range out {
			out[i] = strings.ReplaceAll(out[i], r.id(call{netns: name}), "ID-"+name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// cacheFile is a file of the result cache with the configuration in clear.
func cacheFile(text string) string {
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "no JSON: " + text
	}
	if config, err := base64.StdEncoding.DecodeString(fmt.Sprint(v["config"])); err == nil {
		v["config"] = string(config)
	}
	out, _ := json.MarshalIndent(v, "", "  ")
	return string(out)
}

// indented is JSON with its keys in order, a value a line.
func indented(text string) string {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "no JSON: " + text
	}
	out, _ := json.MarshalIndent(v, "", "  ")
	return string(out)
}

// compare returns the differences from the reference implementation's transcript, and the outcome for the page.
func (p *page) compare(name string, want, have transcript) (problems []string, outcome string) {
	met := map[int]bool{}
	for i, w := range want {
		if i >= len(have) || have[i].title != w.title {
			return append(problems, fmt.Sprintf("step %q is missing", w.title)), "differs"
		}
		a, b := p.forget(name, w.title, w.text, have[i].text, met)
		if a != b {
			problems = append(problems, w.title+":\n"+lineDiff(a, b))
		} else if (w.text == "error") != (have[i].text == "error") && strings.HasPrefix(w.title, "add ") {
			return problems, p.words(name, met) // a wanted difference; what follows differs with it
		}
	}
	if len(have) > len(want) {
		problems = append(problems, fmt.Sprintf("step %q is one too many", have[len(want)].title))
	}
	if len(problems) > 0 {
		return problems, "differs"
	}
	return nil, p.words(name, met)
}

// lineDiff lists the lines that only one of two texts has.
func lineDiff(want, have string) string {
	a, b := strings.Split(want, "\n"), strings.Split(have, "\n")
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, "  reference: "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, "  this side: "+l)
		}
	}
	if len(out) == 0 {
		return "  the same lines in another order or number:\n" + want + "\n  --\n" + have
	}
	return strings.Join(out, "\n")
}
