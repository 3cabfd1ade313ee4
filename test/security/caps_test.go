package security

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// page is what this package's tests hold.
const page = "../../docs/security.md"

// table reads docs/security.md's list of what each plugin needs.
func table(t testing.TB) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "| plugin | capabilities |")
	if !ok {
		t.Fatalf("%s has no table of capabilities", page)
	}
	out := map[string][]string{}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 {
			if len(out) > 0 {
				break
			}
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			name = strings.Trim(name, " `")
			out[name] = []string{}
			for word := range strings.FieldsFuncSeq(cells[2], func(r rune) bool { return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", r) }) {
				out[name] = append(out[name], strings.ToLower(strings.TrimPrefix(word, "CAP_")))
			}
		}
	}
	return out
}

// Each plugin does ADD, CHECK and DEL with the capabilities that the page lists, and with
// none of them less.
func TestCapabilities(t *testing.T) {
	list := table(t)
	for _, c := range calls() {
		t.Run(c.plugin, func(t *testing.T) {
			t.Parallel()
			caps, ok := list[c.plugin]
			if !ok {
				t.Fatalf("%s is not in the table", c.plugin)
			}
			m := c.prepare(t)
			if err := m.with(c, caps); err != nil {
				t.Errorf("with %v: %v", caps, err)
			}
			for i, left := range caps {
				few := slices.Delete(slices.Clone(caps), i, i+1)
				if err := m.with(c, few); err == nil {
					t.Errorf("%s is not needed: strike it from the table", left)
				}
			}
		})
	}
}

// with does ADD, CHECK and DEL with some capabilities; what is left of a failure is removed.
func (m *machine) with(c call, caps []string) error {
	conf := c.text(m)
	all := m.wrap
	defer func() {
		m.wrap = all
		m.must("DEL", c.plugin, "a", conf)
	}()
	m.wrap = append([]string{"setpriv"}, bounded(caps)...)
	result, err := m.run("ADD", c.plugin, "a", conf)
	if err == nil {
		_, err = m.run("CHECK", c.plugin, "a", checked(conf, result))
	}
	if err == nil {
		_, err = m.run("DEL", c.plugin, "a", conf)
	}
	return err
}

// bounded are setpriv's words for these capabilities and no others.
func bounded(caps []string) []string {
	few := "-all"
	for _, name := range caps {
		few += ",+" + name
	}
	return []string{"--bounding-set=" + few, "--inh-caps=-all", "--ambient-caps=-all"}
}

// The units that run commands of ours may do what the plugins may, and nothing that the page
// does not say.
func TestUnits(t *testing.T) {
	t.Parallel()
	list := table(t)
	for _, unit := range []string{"fairlead-gc", "fairlead-repair", "fairlead-dhcp"} {
		raw, err := os.ReadFile("../../contrib/systemd/" + unit + ".service")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(raw), "\nCapabilityBoundingSet=")
		line, _, _ := strings.Cut(rest, "\n")
		var has []string
		for word := range strings.FieldsSeq(line) {
			has = append(has, strings.ToLower(strings.TrimPrefix(word, "CAP_")))
		}
		want := slices.Clone(list[unit])
		slices.Sort(has)
		slices.Sort(want)
		if len(has) == 0 || !slices.Equal(has, want) {
			t.Errorf("%s has %v, the page says %v", unit, has, want)
		}
	}
}
