package ipam

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/skel"
)

// TestDocExamples runs the examples on the plugins' pages.
func TestDocExamples(t *testing.T) {
	t.Parallel()
	for _, p := range []skel.Plugin{HostLocal(), Static()} {
		page, err := os.ReadFile("../../docs/plugins/" + p.Name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(page), "```json\n")[1:]
		if len(blocks) < 2 {
			t.Errorf("the page of %s has %d examples", p.Name, len(blocks))
		}
		for _, block := range blocks {
			example, _, _ := strings.Cut(block, "```")
			conf := map[string]any{}
			if err := json.Unmarshal([]byte(example), &conf); err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			conf["ipam"].(map[string]any)["dataDir"] = t.TempDir()
			data, _ := json.Marshal(conf)
			mustRun(t, ours(p), call{verb: "ADD", id: "one", conf: string(data)})
		}
	}
}
