package scenario

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// TestThreadsOfDelInIsolatedNetwork runs DEL repeatedly in a process whose host, for the plugin, is an isolated
// network's namespace. No thread of the process stays in that namespace or in the container's.
func TestThreadsOfDelInIsolatedNetwork(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	isolated, container := kerneltest.Netns(t), kerneltest.Netns(t)
	host, err := netns.Open(isolated)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	dir := t.TempDir()
	conf := `{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "dataDir": "` + dir + `/ipam", "subnet": "10.1.0.0/24"}}`
	ctx := plugin.WithHost(context.Background(), isolated)
	for _, p := range plugins.In(plugin.Env{Root: dir}).Plugins {
		if p.Name != "bridge" {
			continue
		}
		for range 20 {
			err := host.Do(func() error {
				return p.Funcs.Del(ctx, &skel.CmdArgs{ContainerID: "c", Netns: container, IfName: "eth0", Path: programs, StdinData: []byte(conf)})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var names []string
	for _, path := range []string{isolated, container} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("net:[%d]", info.Sys().(*syscall.Stat_t).Ino))
	}
	kerneltest.ThreadsLeave(t, func(netns string) bool { return slices.Contains(names, netns) })
}
