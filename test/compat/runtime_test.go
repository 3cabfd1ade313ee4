package compat

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/libcni"
)

// call is one operation on the network "net".
type call struct {
	verb    string // add, check, del, gc, status
	netns   string // name of the container; "": DEL without CNI_NETNS
	of      string // the container of the attachment if netns is ""
	ifname  string // "": eth0
	capArgs string // JSON, by capability
	cniArgs string // CNI_ARGS
	network string // "": net
}

// write writes the host's network configuration.
func (h *host) write(list string) {
	h.T.Helper()
	list = strings.ReplaceAll(list, "$DIR", h.Dir)
	if !json.Valid([]byte(list)) {
		h.T.Fatalf("the case's own configuration is not valid JSON: %s", list)
	}
	if err := os.WriteFile(filepath.Join(h.Dir, "net.d", "net.conflist"), []byte(list), 0o600); err != nil {
		h.T.Fatal(err)
	}
}

// call runs one operation with the host's runtime and returns its output.
func (h *host) call(c call) (string, error) {
	if c.ifname == "" {
		c.ifname = "eth0"
	}
	if c.network == "" {
		c.network = "net"
	}
	if h.side.ourRuntime {
		return h.callFairlead(c)
	}
	env := append(h.env(), "NETCONFPATH="+filepath.Join(h.Dir, "net.d"), "CNI_PATH="+h.path(),
		"CNI_IFNAME="+c.ifname, "CAP_ARGS="+c.capArgs, "CNI_ARGS="+c.cniArgs)
	return h.command(env, "", reference.Cnitool(h.T), c.verb, c.network, h.Netns[c.netns])
}

func (h *host) env() []string {
	return append([]string{"FAIRLEAD_RUN=" + filepath.Join(h.Dir, "run")}, h.more...)
}

func (h *host) path() string {
	if h.plugins != "" {
		return h.plugins
	}
	return h.side.pluginDir(h.T)
}

// hostExec runs plugins with the host's own state.
type hostExec struct {
	invoke.RawExec
	env []string
}

func (e *hostExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	return e.RawExec.ExecPlugin(ctx, path, stdin, append(environ, e.env...))
}

func (h *host) callFairlead(c call) (string, error) {
	rt := &libcni.RuntimeConf{ContainerID: h.id(c), NetNS: h.Netns[c.netns], IfName: c.ifname}
	if c.capArgs != "" {
		if err := json.Unmarshal([]byte(c.capArgs), &rt.CapabilityArgs); err != nil {
			return "", err
		}
	}
	args, err := cni.ParseArgs(c.cniArgs)
	if err != nil {
		return "", err
	}
	for _, a := range args {
		rt.Args = append(rt.Args, [2]string{a.Key, a.Value})
	}
	list, err := libcni.LoadNetworkConf(filepath.Join(h.Dir, "net.d"), c.network)
	if err != nil {
		return "", err
	}
	lib := libcni.NewCNIConfigWithCacheDir([]string{h.path()}, filepath.Join(h.Dir, "lib", "cni"), &hostExec{env: h.env()})
	return operate(context.Background(), lib, list, rt, c.verb)
}

func operate(ctx context.Context, lib *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, verb string) (string, error) {
	switch verb {
	case "add":
		res, err := lib.AddNetworkList(ctx, list, rt)
		if err != nil {
			return "", err
		}
		out, err := wire.Encode(res, "")
		return string(out), err
	case "check":
		return "", lib.CheckNetworkList(ctx, list, rt)
	case "del":
		return "", lib.DelNetworkList(ctx, list, rt)
	case "gc":
		return "", lib.GCNetworkList(ctx, list, &libcni.GCArgs{})
	case "status":
		return "", lib.GetStatusNetworkList(ctx, list)
	}
	return "", fmt.Errorf("no such operation: %s", verb)
}

// id returns the container ID that cnitool derives from a namespace's path.
func (h *host) id(c call) string {
	path := h.Netns[c.netns]
	if path == "" {
		path = h.Netns[c.of]
	}
	sum := sha512.Sum512([]byte(path))
	return "cnitool-" + hex.EncodeToString(sum[:10])
}
