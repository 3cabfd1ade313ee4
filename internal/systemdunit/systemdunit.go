// Package systemdunit reads the units in contrib/systemd, for tests that run a command as its unit does.
package systemdunit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Unit has the settings of a service.
type Unit map[string]string

// Read reads the unit of a service of this repository. The test's package must be two folders below the repository's
// root.
func Read(t testing.TB, service string) Unit {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../contrib/systemd", service+".service"))
	if err != nil {
		t.Fatal(err)
	}
	u := Unit{}
	for l := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(l), "="); ok && !strings.HasPrefix(l, "#") {
			u[key] = value
		}
	}
	if !strings.HasPrefix(u["ExecStart"], "/usr/bin/fairlead ") || len(u.Capabilities()) == 0 {
		t.Fatalf("the unit %s has %v", service, u)
	}
	return u
}

// Args returns the arguments of the command that the unit starts, without the program.
func (u Unit) Args() []string { return strings.Fields(u["ExecStart"])[1:] }

// Capabilities returns the names of the unit's capabilities, such as net_admin.
func (u Unit) Capabilities() (names []string) {
	for name := range strings.FieldsSeq(u["CapabilityBoundingSet"]) {
		names = append(names, strings.ToLower(strings.TrimPrefix(name, "CAP_")))
	}
	return names
}

// Setpriv returns a command line that limits the command after it to some capabilities.
func Setpriv(capabilities []string) []string {
	set := "-all"
	for _, name := range capabilities {
		set += ",+" + name
	}
	return []string{"setpriv", "--bounding-set=" + set, "--inh-caps=-all", "--ambient-caps=-all"}
}
