package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// TestAltNameOfMaster checks a master by an alternative name that is longer than an interface's name can be.
func TestAltNameOfMaster(t *testing.T) {
	t.Parallel()
	facts := plugintest.Host(false)
	long := strings.Repeat("n", 127)
	facts[kernel.Host][long] = facts[kernel.Host]["dev0"]
	conf := func(name string) []byte {
		return []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "macvlan", "master": "` + name + `"}`)
	}
	list, err := Macvlan().State(conf(long), "c1", "eth0", "/run/netns/c1", facts, &cni.Result{})
	if text := fmt.Sprint(list); err != nil || !strings.Contains(text, "ip link add link dev0 of the host name eth0") {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := plugintest.Try(Macvlan(), conf(long+"n"), &cni.Result{}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("128 bytes: %v", err)
	}
}
