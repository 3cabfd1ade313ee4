package link

import (
	"testing"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

func all() []plugin.Plugin {
	return []plugin.Plugin{Bridge(), PTP(), HostDevice(), Loopback(), Dummy(), Tap(), Macvlan(), IPvlan(), VLAN()}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	plugintest.Golden(t, all()...)
}

func FuzzConfig(f *testing.F) { plugintest.Fuzz(f, all()...) }
