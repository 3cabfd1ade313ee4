package link

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
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

// withoutDefault is a host without a default route.
type withoutDefault struct{ plugintest.Facts }

func (withoutDefault) DefaultLink(kernel.Side) (string, error) { return "", os.ErrNotExist }

// TestStatusOfChainedIPvlan checks STATUS on a host without a default route. ipvlan may get its parent from the plugin
// before it in the list.
func TestStatusOfChainedIPvlan(t *testing.T) {
	t.Parallel()
	a := &plugin.Attachment{Facts: withoutDefault{plugintest.Host(false)}}
	for _, c := range []struct {
		ipam  string
		ready bool
	}{{"", true}, {"host-local", false}} {
		conf := &ipvlan{}
		conf.IPAM.Type = c.ipam
		if err := conf.Ready(t.Context(), a); (err == nil) != c.ready {
			t.Errorf("ipam %q: %v", c.ipam, err)
		}
	}
}
