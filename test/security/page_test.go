package security

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each test that the page names is there.
func TestPage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	have := ""
	for _, pattern := range []string{"*_test.go", "../scenario/*_test.go", "../cluster/*_test.go", "../architecture/*_test.go", "../../doctor/*_test.go", "../../agent/*_test.go", "../../agent/cluster/*_test.go", "../../agent/store/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			have += string(text)
		}
	}
	names := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(raw), -1)
	if len(names) < 15 {
		t.Errorf("the page names %d tests", len(names))
	}
	for _, n := range names {
		if !strings.Contains(have, "func "+n[1]+"(") {
			t.Errorf("there is no %s", n[1])
		}
	}
}
