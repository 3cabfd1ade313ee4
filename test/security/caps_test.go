package security

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/systemdunit"
)

// page is the page whose claims this package tests.
const page = "../../docs/security.md"

// capabilityTable reads each plugin's capabilities from docs/security.md.
func capabilityTable(t testing.TB) map[string][]string {
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

// TestCapabilities checks that each plugin runs ADD, CHECK and DEL with the capabilities that the page lists, and fails
// without any one of them.
func TestCapabilities(t *testing.T) {
	list := capabilityTable(t)
	for _, c := range pluginCases() {
		t.Run(c.plugin, func(t *testing.T) {
			t.Parallel()
			caps, ok := list[c.plugin]
			if !ok {
				t.Fatalf("%s is not in the table", c.plugin)
			}
			m := c.prepare(t)
			if err := m.runWithCapabilities(c, caps); err != nil {
				t.Errorf("with %v: %v", caps, err)
			}
			for i, dropped := range caps {
				fewer := slices.Delete(slices.Clone(caps), i, i+1)
				if err := m.runWithCapabilities(c, fewer); err == nil {
					t.Errorf("%s is not needed: remove it from the table", dropped)
				}
			}
			if err := m.runWithCapabilities(c, caps); err != nil { // otherwise, the failures may have had another reason
				t.Errorf("with %v again: %v", caps, err)
			}
		})
	}
}

// runWithCapabilities runs ADD, CHECK and DEL with the given capabilities. After a failure it cleans up.
func (m *machine) runWithCapabilities(c pluginCase, caps []string) error {
	conf := c.text(m)
	wrap := m.wrap
	defer func() {
		m.wrap = wrap
		m.must("DEL", c.plugin, "a", conf)
	}()
	m.wrap = systemdunit.Setpriv(caps)
	result, err := m.run("ADD", c.plugin, "a", conf)
	if err == nil {
		_, err = m.run("CHECK", c.plugin, "a", withPrevResult(conf, result))
	}
	if err == nil {
		_, err = m.run("DEL", c.plugin, "a", conf)
	}
	return err
}

// TestSystemdUnitCapabilities checks that the systemd units of our commands grant the plugins' capabilities, and
// nothing that the page does not list.
func TestSystemdUnitCapabilities(t *testing.T) {
	t.Parallel()
	list := capabilityTable(t)
	for _, unit := range []string{"fairlead-gc", "fairlead-repair", "fairlead-dhcp", "fairlead-docker"} {
		has := systemdunit.Read(t, unit).Capabilities()
		want := slices.Clone(list[unit])
		slices.Sort(has)
		slices.Sort(want)
		if len(has) == 0 || !slices.Equal(has, want) {
			t.Errorf("%s has %v, the page lists %v", unit, has, want)
		}
	}
}
