package podnet_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/podnet"
)

// A runtime uses one Manager for its whole life, and the Manager follows the configuration.
func Example() {
	dir, err := os.MkdirTemp("", "podnet-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	conf := `{"cniVersion": "1.1.0", "name": "lonely", "plugins": [{"type": "loopback"}]}`
	if err := os.WriteFile(filepath.Join(dir, "10-lonely.conflist"), []byte(conf), 0o644); err != nil {
		log.Fatal(err)
	}
	self, err := os.Executable() // TestMain lets the test binary run as every plugin
	if err != nil {
		log.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "loopback")); err != nil {
		log.Fatal(err)
	}

	m, err := podnet.New(podnet.Options{
		ConfDirs: []string{dir}, PluginDirs: []string{dir}, // by default /etc/cni/net.d, /opt/cni/bin
		StateDir: filepath.Join(dir, "pods"), CacheDir: filepath.Join(dir, "cache"),
		Exec: plugins.In(plugin.Env{}), // Fairlead's plugins run in this process, others as processes
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = m.Watch(ctx, nil) }()

	if s := m.Status(ctx); s.Ready {
		fmt.Println("ready:", s.Default)
	}
	pod := podnet.Pod{ID: "4f1c9a", Netns: "/nowhere", Namespace: "shop", Name: "web"}
	if err := pod.Annotate(map[string]string{"fairlead.io/networks": "lonely@lo1"}); err != nil {
		log.Fatal(err)
	}
	if _, err := m.SetUpPod(ctx, pod); err != nil {
		fmt.Println(err)
	}
	fmt.Println("torn down:", m.TearDownPod(ctx, pod.ID) == nil)
	// Output:
	// ready: lonely
	// pod 4f1c9a: there is no network namespace /nowhere
	// torn down: true
}
