package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// boundaryKey is a key whose boundary values both sides get.
type boundaryKey struct {
	plugin, key string
	list        string // the list's "plugins"; @ stands for the key and its value
	capArgs     string // the same for a key of runtimeConfig
	typical     string // two valid values, as JSON
	other       string
	min, max    *int64   // of a number
	more        []string // further values, as JSON
	kase        keyCase  // prepare, before, meanwhile, needs
}

// boundaryValue is one value, or another way to write the key.
type boundaryValue struct{ label, text string }

// values returns the key's boundary values as text to insert.
func (k boundaryKey) values() (out []boundaryValue) {
	name := k.key[strings.LastIndexByte(k.key, '.')+1:]
	add := func(label, key, value string) {
		out = append(out, boundaryValue{label, fmt.Sprintf("%q: %s, ", key, value)})
	}
	out = append(out, boundaryValue{label: "absent"})
	values := []string{k.typical, k.other, "null", `""`, "[]", "{}", "0", "1", "-1", "true", "false", "1.5", `"x"`, `["x"]`, `{"x": 1}`}
	if k.min != nil {
		for _, n := range []int64{*k.min, *k.min - 1, *k.max, *k.max + 1} {
			values = append(values, strconv.FormatInt(n, 10))
		}
	}
	values = append(values, k.more...)
	for i, v := range values {
		if v != "" && slices.Index(values, v) == i {
			add(v, name, v)
		}
	}
	add("in upper case", strings.ToUpper(name), k.typical)
	if k.other != "" {
		out = append(out, boundaryValue{"twice", fmt.Sprintf("%q: %s, %q: %s, ", name, k.typical, name, k.other)})
	}
	return out
}

// cases returns a case for each value.
func (k boundaryKey) cases() (out []keyCase) {
	for _, v := range k.values() {
		c := k.kase
		c.plugin, c.key, c.with = k.plugin, k.key, v.label
		c.plugins = strings.ReplaceAll(k.list, "@", v.text)
		c.capArgs = trailingComma.ReplaceAllString(strings.ReplaceAll(k.capArgs, "@", v.text), "$1")
		out = append(out, c)
	}
	return out
}

var trailingComma = regexp.MustCompile(`, *([}\]])`)

// boundaryCounts are the outcomes of all cases.
type boundaryCounts struct {
	sync.Mutex
	Accepted, Refused, Differ, Unexplained int
}

// TestBoundaries gives boundary values of every key to both sides: absent, null, empty, the limits and one past them,
// values of other types, the key in another case and the key twice. If both accept a value, results and effects must be
// equal. If both refuse it, the reasons must match: see refusals. If only one accepts it, there must be a listed reason.
//
// It runs every 24th case, and every 288th of those for virtual machines: see sampled.
func TestBoundaries(t *testing.T) {
	installReference(t)
	counts := &boundaryCounts{}
	t.Run("case", func(t *testing.T) { // returns when all parallel subtests have ended
		for i, c := range boundaryCases() {
			every := 24
			if c.needs != "" {
				every = 288
			}
			if !sampled(i, every) || strings.Contains(c.plugins, `"dataDir": "x"`) { // both sides would share the folder
				continue
			}
			name := c.name()
			if c.needs != "" {
				name = "features/" + name // run by the VM lane
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if c.needs != "" {
					kerneltest.Needs(t, c.needs)
				}
				compareBoundary(t, c, counts)
			})
		}
	})
	t.Logf("%d cases accepted by both and equal, %d refused by both for the same reason, %d differ for a known reason, %d unexplained",
		counts.Accepted, counts.Refused, counts.Differ, counts.Unexplained)
}

// sampled reports whether case i runs. By default every n-th does, and with FAIRLEAD_BOUNDARIES=all, as in `make compat`,
// every one.
func sampled(i, n int) bool { return i%n == 0 || os.Getenv("FAIRLEAD_BOUNDARIES") == "all" }

// boundaryCases returns a case for every value of every key, and those with objects that other software created.
func boundaryCases() (out []keyCase) {
	for _, k := range boundaryKeys() {
		out = append(out, k.cases()...)
	}
	return append(out, existingObjects()...)
}

func compareBoundary(t *testing.T, k keyCase, counts *boundaryCounts) {
	reference, fairlead := k.record(t, side{}), k.record(t, side{ourPlugins: true})
	counter := &counts.Unexplained
	switch ref, own := reference.firstErr, fairlead.firstErr; {
	case ref == "" && own == "":
		counter = &counts.Accepted
		problems, _ := newPage().compare(k.name(), reference.transcript, fairlead.transcript)
		for _, p := range problems {
			if explained(k, p) {
				counter = &counts.Differ
			} else {
				t.Error(p)
			}
		}
	case ref != "" && own != "":
		counter = &counts.Refused
		if !sameRefusal(ref, own) {
			t.Errorf("both refuse it, for reasons that do not match:\n  reference: %s\n  Fairlead: %s", ref, own)
		}
	case ref == "" && (matches(rejectedByFairlead(), own) || matches(boundaryRejectedByFairlead(), k.name()+": "+own)):
		counter = &counts.Differ
	case ref == "":
		t.Errorf("only the reference accepts it: %s", own)
	case matches(rejectedByReference(), ref) || matches(boundaryRejectedByReference(), k.name()+": "+ref):
		counter = &counts.Differ
	default:
		t.Errorf("only Fairlead accepts it: %s", ref)
	}
	if (reference.firstErr == "") != (fairlead.firstErr == "") {
		for _, p := range fairlead.aloneProblems() {
			t.Error(p)
		}
	}
	if t.Failed() {
		t.Logf("%s: %s %s", k.name(), k.plugins, k.capArgs)
		counter = &counts.Unexplained
	}
	counts.Lock()
	defer counts.Unlock()
	*counter++
}

// refusal is a reason for which both sides refuse a value, by a pattern of each error.
type refusal struct{ reference, fairlead string }

func sameRefusal(reference, fairlead string) bool {
	return slices.ContainsFunc(refusals(), func(r refusal) bool {
		return regexp.MustCompile(r.reference).MatchString(reference) && regexp.MustCompile(r.fairlead).MatchString(fairlead)
	})
}

// TestBoundariesCoverEveryKey checks that each key of a plugin's page has boundary values.
func TestBoundariesCoverEveryKey(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{}
	for _, k := range boundaryKeys() {
		covered[k.plugin+" "+k.key] = true
		if !json.Valid([]byte(k.typical)) {
			t.Errorf("%s %s: %s is not JSON", k.plugin, k.key, k.typical)
		}
	}
	for _, k := range allKeys() {
		for key := range strings.SplitSeq(k.key, ", ") {
			if name := k.plugin + " " + key; !covered[name] && boundaryExempt(name) == "" && boundaryExempt(key) == "" {
				t.Errorf("no boundary values of %s", name)
			}
		}
	}
}

// boundaryExempt returns why a key has no boundary values, or "".
func boundaryExempt(key string) string {
	switch {
	case key == "bridge mac" || key == "dhcp routes":
		return "the reference does not read it"
	case strings.Contains(key, "CNI_ARGS"):
		return "it is no key of the configuration"
	case key == "IP" || key == "prevResult":
		return "the runtime sets it"
	case key == "type" || key == "ipam" || key == "request" || key == "portMappings" || key == "dns.domain" || key == "provide":
		return "it contains other keys, which have values"
	case strings.HasPrefix(key, "routes:") || key == "ipam.gateway" || strings.HasPrefix(key, "runtimeConfig.ip") || strings.HasPrefix(key, "args.cni"):
		return "host-local and static have the values"
	}
	return ""
}
