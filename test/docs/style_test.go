package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const maxColumns = 120

// bannedPhrases maps patterns of phrases that are hard to read to a replacement. The patterns match lower-case text.
func bannedPhrases() map[*regexp.Regexp]string {
	out := map[*regexp.Regexp]string{}
	for pattern, instead := range map[string]string{
		`\bmend(s|ed|ing)?\b`:           "fix",
		`\banew\b`:                      "again",
		`\bheed(s|ed|ing)?\b`:           "use; ignore",
		`\bof (ours|theirs)\b`:          "our plugin, their rules",
		`\bby hand\b`:                   "manually; an administrator",
		`\bbesides?,? (that|it|them)\b`: "also",
		`\b(what|who) (is|are|was|has|had) (no|not|another|somebody|left|said|told|meant|wanted)\b`: "name the thing",
		`\b(what|who) (stands|stood|comes|came|goes|went)\b`:                                        "name the thing",
		`\b(for|with|to|by|from|of|than) (who|whom) (is|are|was|has|had|does|did|it|they|the)\b`:    "name the person",
		`\bby then\b|\bas none\b|\bnor (are|is)\b|\bin the words of\b`:                              "split the sentence",
		`\b(is|are) made (so|a)\b`: "configured; created",
		`\bstands? still\b`:        "hangs",
	} {
		out[regexp.MustCompile(pattern)] = instead
	}
	return out
}

// TestProse checks every page for long lines, banned phrases and headings without text.
func TestProse(t *testing.T) {
	t.Parallel()
	rules := bannedPhrases()
	for _, page := range pages(t) {
		for i, line := range proseLines(read(t, page)) {
			text := strings.ToLower(line)
			for rule, instead := range rules {
				if found := rule.FindString(text); found != "" {
					t.Errorf("%s:%d: %q: write %s", page, i+1, found, instead)
				}
			}
			if columns(line) > maxColumns && !isTable(line) && !isLink(line) && !isMeasurement(line) {
				t.Errorf("%s:%d: %d columns, at most %d", page, i+1, columns(line), maxColumns)
			}
		}
		checkHeadings(t, page)
	}
}

// proseLines returns the lines of a page, with fenced code blocks and generated parts blanked.
func proseLines(text string) []string {
	lines := strings.Split(text, "\n")
	code, generated := false, false
	for i, l := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(l), "```")
		switch {
		case strings.HasPrefix(l, "<!-- end of"):
			generated = false
		case strings.HasPrefix(l, "<!--") && !strings.Contains(l, "end of"):
			generated = true
		}
		if fence || code || generated {
			lines[i] = ""
		}
		if fence {
			code = !code
		}
	}
	return lines
}

// columns counts an East Asian character as two columns.
func columns(line string) (n int) {
	for _, r := range line {
		n++
		if unicode.Is(unicode.Han, r) {
			n++
		}
	}
	return n
}

func isTable(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "|") }

// isMeasurement reports whether a line is a note below a table that a benchmark wrote.
func isMeasurement(line string) bool { return strings.HasSuffix(line, "  ") }

// isLink reports whether a line cannot be wrapped, because it is a single link or word.
func isLink(line string) bool {
	return !strings.Contains(strings.TrimLeft(line, " -*"), " ") || strings.HasPrefix(line, "![")
}

// checkHeadings checks that each heading is followed by text, a list, a table or a deeper heading.
func checkHeadings(t *testing.T, page string) {
	t.Helper()
	lines := proseLines(read(t, page))
	raw := strings.Split(read(t, page), "\n")
	heading := regexp.MustCompile(`^(#+) `)
	for i, l := range lines {
		m := heading.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		next := i + 1
		for next < len(raw) && strings.TrimSpace(raw[next]) == "" {
			next++
		}
		if next == len(raw) {
			t.Errorf("%s:%d: the heading %q has no text", page, i+1, l)
		} else if n := heading.FindStringSubmatch(lines[next]); n != nil && len(n[1]) <= len(m[1]) {
			t.Errorf("%s:%d: the heading %q has no text", page, i+1, l)
		}
	}
}

// TestLinks checks that every relative link leads to a file, and every anchor to a heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	count := 0
	for _, page := range pages(t) {
		for _, to := range links(read(t, page)) {
			count++
			file, anchor, _ := strings.Cut(to, "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: the link to %s is dead", page, to)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s has no heading #%s; it has %q", page, target, anchor, anchors(read(t, target)))
			}
		}
	}
	if count < 100 {
		t.Errorf("found only %d links", count)
	}
}

// TestReachable checks that a reader who starts at docs/README.md finds every page.
func TestReachable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	queue := []string{"docs/README.md", "README.md"}
	for len(queue) > 0 {
		page := queue[0]
		queue = queue[1:]
		if seen[page] || !strings.HasSuffix(page, ".md") {
			continue
		}
		seen[page] = true
		for _, to := range links(read(t, page)) {
			if file, _, _ := strings.Cut(to, "#"); file != "" {
				queue = append(queue, path.Join(path.Dir(page), file))
			}
		}
	}
	for _, page := range pages(t) {
		if !seen[page] {
			t.Errorf("no link leads from docs/README.md to %s", page)
		}
	}
}

// TestNamedTests checks that every test that a page names exists.
func TestNamedTests(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, "_test.go") {
			var raw []byte
			if raw, err = os.ReadFile(file); err == nil {
				for _, m := range function.FindAllStringSubmatch(string(raw), -1) {
					exists[m[1]] = true
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+\b`)
	count := 0
	for _, page := range pages(t) {
		for _, n := range name.FindAllString(read(t, page), -1) {
			if count++; !exists[n] {
				t.Errorf("%s names %s, which does not exist", page, n)
			}
		}
	}
	if count < 60 {
		t.Errorf("the pages name only %d tests", count)
	}
}

// pages lists every Markdown page of the project, relative to its root.
func pages(t *testing.T) (out []string) {
	t.Helper()
	for _, dir := range []string{".", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if dir == "." && err == nil && file != filepath.Join(root, dir) {
					return fs.SkipDir
				}
				return err
			}
			if strings.HasSuffix(file, ".md") {
				page, err := filepath.Rel(root, file)
				out = append(out, filepath.ToSlash(page))
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 50 {
		t.Fatalf("%d pages: %q", len(out), out)
	}
	return out
}

func read(t *testing.T, page string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(raw) {
		t.Fatalf("%s is not UTF-8", page)
	}
	return string(raw)
}

// links returns the targets of a page's links within the repository.
func links(text string) (out []string) {
	prose := strings.Join(proseLines(text), "\n")
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose, -1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			out = append(out, m[1])
		}
	}
	return out
}

// anchors returns the anchors that GitHub generates for a page's headings.
func anchors(text string) (out []string) {
	for _, l := range proseLines(text) {
		if m := regexp.MustCompile(`^#+ (.*)$`).FindStringSubmatch(l); m != nil {
			anchor := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, m[1])
			out = append(out, anchor)
		}
	}
	return out
}
