package ruleset_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugins/ruleset"
)

// TestRemoveIngress removes the rules of missing bridges only. A bridge that an ADD creates meanwhile keeps its rules.
func TestRemoveIngress(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	link := func(name string) { kerneltest.Run(t, "ip", "link", "add", name, "type", "bridge") }
	link("br0")
	for _, bridge := range []string{"br0", "gone0", "gone1", "new0"} {
		if err := e.Apply(ruleset.Ingress(bridge, bridge != "gone1")); err != nil {
			t.Fatal(err)
		}
	}
	rules := func(bridge string) int {
		return strings.Count(kerneltest.Run(t, "nft", "list", "table", "inet", "fairlead"), `ifname "`+bridge+`" `)
	}
	full, fewer := rules("br0"), rules("gone1")
	remove := func(dry bool, want ...string) {
		t.Helper()
		got, err := ruleset.RemoveIngress(e, func(bridge string) bool {
			if bridge == "new0" && !dry {
				link(bridge)
			}
			return true
		}, dry)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("dry %v: %q, %v, want %q", dry, got, err, want)
		}
	}
	remove(true, "gone0", "gone1", "new0")
	if rules("gone0") != full || rules("gone1") != fewer {
		t.Error("a dry run changed the rules")
	}
	remove(false, "gone0", "gone1")
	remove(false)
	for bridge, want := range map[string]int{"br0": full, "new0": full, "gone0": 0, "gone1": 0} {
		if got := rules(bridge); got != want {
			t.Errorf("%s has %d rules, want %d", bridge, got, want)
		}
	}
}
