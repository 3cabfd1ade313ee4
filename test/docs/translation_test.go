package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestTranslation: README.zh-CN.md is in step with README.md: as many headings of each
// depth in the same order, the same blocks and words of code, pages and figures.
func TestTranslation(t *testing.T) {
	t.Parallel()
	for what, pattern := range map[string]string{
		"headings":       `(?m)^#+ `,
		"blocks":         "(?ms)^```.*?^```",
		"words of code":  "`[^`\n]+`",
		"links":          `\]\(([^)]+)\)`,
		"lines of lists": `(?m)^(\||- )`,
		"figures":        `\b\d+\.\d+(-\d+\.\d+)?\b`,
	} {
		a, b := all(t, "README.md", pattern), all(t, "README.zh-CN.md", pattern)
		for i := range max(len(a), len(b)) {
			x, y := at(a, i), at(b, i)
			if x == "](README.zh-CN.md)" && y == "](README.md)" {
				continue
			}
			if x != y {
				t.Errorf("%s, number %d of %d: README.md has %q, README.zh-CN.md %q", what, i+1, len(a), x, y)
				break
			}
		}
		if len(a) < 3 {
			t.Errorf("%d %s: the pages are not read", len(a), what)
		}
	}
}

func all(t *testing.T, name, pattern string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if pattern[len(pattern)-3:] != "```" { // what is in blocks is compared as a whole
		text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	}
	return slices.Clip(regexp.MustCompile(pattern).FindAllString(text, -1))
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}
