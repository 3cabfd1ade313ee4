package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestTranslation checks that README.zh-CN.md matches README.md: the same headings in the same order, and the same
// code, links, list lines and figures.
func TestTranslation(t *testing.T) {
	t.Parallel()
	for kind, pattern := range map[string]string{
		"headings":    `(?m)^#+ `,
		"blocks":      "(?ms)^```.*?^```",
		"inline code": "`[^`\n]+`",
		"links":       `\]\(([^)]+)\)`,
		"list lines":  `(?m)^(\||- )`,
		"figures":     `\b\d+\.\d+(-\d+\.\d+)?\b`,
	} {
		a, b := allMatches(t, "README.md", pattern), allMatches(t, "README.zh-CN.md", pattern)
		for i := range max(len(a), len(b)) {
			x, y := itemOrNothing(a, i), itemOrNothing(b, i)
			if x == "](README.zh-CN.md)" && y == "](README.md)" {
				continue
			}
			if x != y {
				t.Errorf("%s, number %d of %d: README.md has %q, and README.zh-CN.md has %q", kind, i+1, len(a), x, y)
				break
			}
		}
		if len(a) < 3 {
			t.Errorf("only %d %s in README.md", len(a), kind)
		}
	}
}

func allMatches(t *testing.T, name, pattern string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if pattern[len(pattern)-3:] != "```" { // blocks are compared as a whole
		text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	}
	return slices.Clip(regexp.MustCompile(pattern).FindAllString(text, -1))
}

func itemOrNothing(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}
