package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/plugins/ovs"
)

// runtimeMain runs our libcni on a file: "cni VERB FILE NAME [IFNAME]". The variable NAME has the path of the container's
// namespace; "-" is none. CONTAINER has the container's ID. LIST_MODE says how a list runs: plugin by plugin, "fused" into
// one plugin, or "in-process".
func runtimeMain() {
	verb, file, ns := os.Args[1], os.Args[2], os.Args[3]
	rt := &libcni.RuntimeConf{ContainerID: os.Getenv("CONTAINER"), IfName: "eth0"}
	if ns != "-" {
		rt.NetNS = os.Getenv(ns)
	}
	if rt.ContainerID == "" {
		rt.ContainerID = ns
	}
	if len(os.Args) > 4 {
		rt.IfName = os.Args[4]
	}
	if s := os.Getenv("CAP_ARGS"); s != "" {
		fail(json.Unmarshal([]byte(s), &rt.CapabilityArgs))
	}
	args, err := cni.ParseArgs(os.Getenv("CNI_ARGS"))
	fail(err)
	for _, a := range args {
		rt.Args = append(rt.Args, [2]string{a.Key, a.Value})
	}
	list, err := load(file)
	fail(err)
	var exec libcni.Exec
	switch os.Getenv("LIST_MODE") {
	case "fused":
		list, err = fused(list)
		fail(err)
	case "in-process":
		exec = inProcess()
	}
	c := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), os.Getenv("WORK")+"/cache", exec)
	if verb, ok := strings.CutPrefix(verb, "each "); ok {
		runForEach(c, verb, list, strings.Split(rt.NetNS, ","))
		return
	}
	fail(do(context.Background(), c, verb, list, rt))
}

// runForEach runs a verb concurrently for several containers. It numbers them in the order of their namespaces.
func runForEach(c *libcni.CNIConfig, verb string, list *libcni.NetworkConfigList, netns []string) {
	var wg sync.WaitGroup
	for i, ns := range netns {
		wg.Go(func() {
			fail(do(context.Background(), c, verb, list, &libcni.RuntimeConf{ContainerID: fmt.Sprint("c", i), NetNS: ns, IfName: "eth0",
				CapabilityArgs: map[string]any{"portMappings": []map[string]any{{"hostPort": 8000 + i, "containerPort": 80}}}}))
		})
	}
	wg.Wait()
}

// inProcess returns an executor that runs plugins within this process. The plugins in CNI_PATH are this program.
func inProcess() libcni.Exec { return plugins.In(plugin.Env{}, ovs.Plugin()) }

// fused returns the list with one plugin in place of all, as fairlead fuse writes it.
func fused(list *libcni.NetworkConfigList) (*libcni.NetworkConfigList, error) {
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
	one := *list
	one.Plugins = []*libcni.NetworkConfig{conf}
	return &one, nil
}

func load(file string) (*libcni.NetworkConfigList, error) {
	if strings.HasSuffix(file, ".conflist") {
		return libcni.ConfListFromFile(file)
	}
	conf, err := libcni.ConfFromFile(file)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

func do(ctx context.Context, c *libcni.CNIConfig, verb string, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	switch verb {
	case "add":
		res, err := c.AddNetworkList(ctx, list, rt)
		if err != nil {
			return err
		}
		out, err := wire.Encode(res, list.CNIVersion)
		if err == nil {
			_, err = fmt.Println(string(out))
		}
		return err
	case "check":
		return c.CheckNetworkList(ctx, list, rt)
	case "del":
		return c.DelNetworkList(ctx, list, rt)
	case "status":
		return c.GetStatusNetworkList(ctx, list)
	case "gc": // $VALID: "container/ifname ..."
		gc := &libcni.GCArgs{}
		for v := range strings.FieldsSeq(os.Getenv("VALID")) {
			id, ifname, _ := strings.Cut(v, "/")
			gc.ValidAttachments = append(gc.ValidAttachments, cni.Attachment{ContainerID: id, IfName: ifname})
		}
		return c.GCNetworkList(ctx, list, gc)
	}
	return fmt.Errorf("no such verb: %s", verb)
}
