package validate

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/builtin"
)

// keyRow matches the first cell of a table's row, key a key in it.
var (
	keyRow = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	key    = regexp.MustCompile("`([A-Za-z_.0-9]+)`")
)

// TestPluginPagesDescribeEveryKey compares docs/plugins with the keys that the plugins read.
func TestPluginPagesDescribeEveryKey(t *testing.T) {
	t.Parallel()
	common := commonKeys()
	for name := range builtin.Programs() {
		raw, err := os.ReadFile("../docs/plugins/" + name + ".md")
		if err != nil {
			t.Errorf("the plugin %s has no page: %v", name, err)
			continue
		}
		known := append(Keys(name), IPAMKeys(name)...)
		if len(known) == 0 {
			t.Errorf("validate knows no key of %s", name)
		}
		var listed []string
		for _, row := range keyRow.FindAllStringSubmatch(string(raw), -1) {
			for _, k := range key.FindAllStringSubmatch(row[1], -1) {
				listed = append(listed, k[1])
			}
		}
		for _, k := range known {
			if !strings.Contains(string(raw), "`"+k+"`") && !slices.Contains(common, k) {
				t.Errorf("docs/plugins/%s.md does not describe the key %s", name, k)
			}
		}
		for _, k := range listed {
			if !slices.Contains(known, k) && !slices.Contains(common, k) {
				t.Errorf("docs/plugins/%s.md lists %s, which the plugin does not read", name, k)
			}
		}
	}
}
