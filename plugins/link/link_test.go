package link

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

func all() []plugin.Plugin { return []plugin.Plugin{Bridge(), PTP(), HostDevice(), Loopback()} }

func TestGolden(t *testing.T) {
	t.Parallel()
	plugintest.Golden(t, all()...)
}

func FuzzConfig(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := plugintest.Survives(raw, all()...); err != nil {
			t.Error(err)
		}
	})
}
