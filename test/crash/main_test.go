// Package crash kills a process, or makes it fail, at each of its system calls in turn. It then compares the whole
// machine after the recovery with its state before.
package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/plugins/ipam/dhcpd"
	"github.com/fairlead/fairlead/plugins/ovs"
	"github.com/fairlead/fairlead/skel"
)

// TestMain runs the test binary as the program named by argv[0]: the tests start every program this way.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch name {
	case "cni":
		mark()
		fail(runtimeMain())
		os.Exit(0)
	case "daemon":
		fail(daemonMain())
		os.Exit(0)
	case policyAgentName:
		mark()
		policyAgentMain()
	case "tracee":
		mark()
		traceeMain()
		os.Exit(0)
	}
	for _, p := range allPlugins() {
		if p.Name == name {
			mark()
			skel.PluginMain(p)
		}
	}
	os.Exit(m.Run())
}

// allPlugins returns the plugins of both programs.
func allPlugins() []skel.Plugin {
	return append(plugins.All(), ovs.Plugin().Skel(plugin.Env{IPAM: plugins.IPAM()}))
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// runtimeMain is a runtime that runs plugins as processes: "cni VERB FILE CONTAINER NETNS".
func runtimeMain() error {
	verb, file := os.Args[1], os.Args[2]
	rt := &libcni.RuntimeConf{ContainerID: os.Args[3], NetNS: os.Args[4], IfName: "eth0"}
	if s := os.Getenv("CAP_ARGS"); s != "" {
		if err := json.Unmarshal([]byte(s), &rt.CapabilityArgs); err != nil {
			return err
		}
	}
	list, err := loadList(file)
	if err != nil {
		return err
	}
	c := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), os.Getenv("WORK")+"/cache", nil)
	ctx := context.Background()
	switch verb {
	case "ADD":
		res, err := c.AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		out, err := wire.Encode(res, list.CNIVersion)
		if err == nil {
			_, err = fmt.Println(string(out))
		}
		return err
	case "CHECK":
		return c.CheckNetworkList(ctx, list, rt)
	case "DEL":
		return c.DelNetworkList(ctx, list, rt)
	case "GC":
		return c.GCNetworkList(ctx, list, &libcni.GCArgs{})
	}
	return errors.New("no such verb: " + verb)
}

// loadList reads a network list, or wraps a single plugin's configuration in one. With $FUSED set it returns the single
// plugin that fairlead fuse writes.
func loadList(file string) (*libcni.NetworkConfigList, error) {
	list, err := libcni.ConfListFromFile(file)
	if !strings.HasSuffix(file, "list") {
		conf, e := libcni.ConfFromFile(file)
		if e != nil {
			return nil, e
		}
		list, err = libcni.ConfListFromConf(conf)
	}
	if err != nil || os.Getenv("FUSED") == "" {
		return list, err
	}
	var raw [][]byte
	for _, p := range list.Plugins {
		raw = append(raw, p.Bytes)
	}
	chain, err := delegate.Fuse(raw)
	if err != nil {
		return nil, err
	}
	conf, err := libcni.ConfFromBytes(chain)
	if err != nil {
		return nil, err
	}
	list.Plugins = []*libcni.NetworkConfig{conf}
	return list, nil
}

// daemonMain runs the DHCP daemon: "daemon SOCKET LEASES".
func daemonMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return dhcpd.Run(ctx, dhcpd.Options{
		SocketPath: os.Args[1], Leases: os.Args[2], ResendTimeout: 20 * time.Second, Log: func(line string) { fmt.Println(line) },
	}, os.Getenv)
}
