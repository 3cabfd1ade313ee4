package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// PodType is the plugin type that attaches a pod to its default network and to the networks that its annotations select.
const PodType = "fairlead-pod"

// PodAnnotations is the capability with which runtimes pass a pod's annotations.
const PodAnnotations = "io.kubernetes.cri.pod-annotations"

// Pod returns the plugin that attaches a pod to the default network, which its configuration contains, and to the
// networks that the pod's annotations select. A pod without such annotations gets the default network as from a
// fairlead-chain, and leaves no record.
func Pod(x *plugin.Exec) skel.Plugin {
	p := pod{chain: chain{x}}
	return skel.Plugin{
		Name: PodType, About: "attaches a pod to the networks that its annotations select",
		Funcs: skel.CNIFuncs{Add: p.add, Check: p.check, Del: p.del, GC: p.gc, Status: p.status},
	}
}

type pod struct {
	chain
}

// podCall is one call of the plugin.
type podCall struct {
	*chain
	args     *skel.CmdArgs
	dir      local.Dir
	state    podstate.Dir
	network  string // the CNI name of the default network
	confDirs []string
	runtime  *rawjson.Object // runtimeConfig
}

// defaultConfDirs are the directories with the networks of empty NetworkAttachmentDefinitions: Multus' and the runtimes'.
func defaultConfDirs() []string { return []string{"/etc/cni/multus/net.d", "/etc/cni/net.d"} }

// begin reads the parts of the configuration that concern several networks. load reads the default network.
func (p pod) begin(args *skel.CmdArgs) (*podCall, error) {
	var c struct {
		Name          string          `json:"name"`
		ConfDirs      []string        `json:"confDirs"`
		RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	}
	if err := cni.Decode(args.StdinData, &c); err != nil {
		return nil, err
	}
	dir := local.Open("", "")
	call := &podCall{chain: &p.chain, args: args, dir: dir, state: podstate.Open(dir), network: c.Name, confDirs: c.ConfDirs}
	if len(call.confDirs) == 0 {
		call.confDirs = defaultConfDirs()
	}
	if len(c.RuntimeConfig) == 0 || string(c.RuntimeConfig) == "null" {
		c.RuntimeConfig = []byte("{}")
	}
	var err error
	if call.runtime, err = rawjson.ParseObject(c.RuntimeConfig); err != nil {
		return nil, cni.Invalid(args.StdinData, "runtimeConfig", "want an object")
	}
	return call, nil
}

func (p pod) add(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	call, err := p.begin(args)
	if err != nil {
		return nil, err
	}
	networks, err := call.requested()
	if err != nil {
		return nil, err
	}
	if networks == nil {
		return p.chain.add(ctx, args)
	}
	return call.add(ctx, networks)
}

func (p pod) check(ctx context.Context, args *skel.CmdArgs) error {
	call, record, err := p.recorded(args)
	if err != nil {
		return err
	}
	if record == nil {
		return p.chain.check(ctx, args)
	}
	return call.check(ctx, record)
}

func (p pod) del(ctx context.Context, args *skel.CmdArgs) error {
	if _, err := p.begin(args); err != nil {
		conf, err := reduced(args.StdinData, "plugins")
		if err != nil {
			return err
		}
		args = withConf(args, conf)
	}
	call, record, err := p.recorded(args)
	if call == nil {
		return err
	}
	if record == nil && err == nil && call.state.HasLock(call.key()) {
		if err := call.awaitOther(ctx); err != nil {
			return err
		}
		_, record, err = p.recorded(args)
	}
	detach := call.detachRecorded
	if record == nil && err == nil {
		record, err = call.ofMultus()
		detach = func(ctx context.Context) error { return call.detachAll(ctx, record) }
	}
	if record == nil {
		return errors.Join(err, p.chain.del(ctx, args))
	}
	unlock, err := call.state.Lock(ctx, call.key())
	if err != nil {
		return err
	}
	defer unlock()
	if err := detach(ctx); err != nil {
		return err
	}
	call.forgetMultus()
	return nil
}

// awaitOther waits for the operation that holds a pod without a record, and removes what a killed one left.
func (c *podCall) awaitOther(ctx context.Context) error {
	unlock, err := c.state.Lock(ctx, c.key())
	if err != nil {
		return err
	}
	defer unlock()
	return c.clearUnrecorded(c.key())
}

// clearUnrecorded removes what a killed operation left of a pod without a record. The caller holds the pod's lock.
func (c *podCall) clearUnrecorded(k podstate.Key) error {
	if _, err := c.state.Pod(k.ContainerID, k.IfName); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return c.state.RemovePod(k.ContainerID, k.IfName)
}

// recorded returns what was attached to the pod, or nil if the pod has the default network alone.
func (p pod) recorded(args *skel.CmdArgs) (*podCall, *podstate.Pod, error) {
	call, err := p.begin(args)
	if err != nil {
		return nil, nil, err
	}
	record, err := call.state.Pod(args.ContainerID, args.IfName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return call, nil, nil
	case err != nil:
		return call, nil, cni.Errorf(cni.CodeGeneric, "%w: Fairlead cannot read which networks this pod has: delete the pod, then remove the file", err)
	}
	return call, record, nil
}

func (p pod) status(ctx context.Context, args *skel.CmdArgs) error {
	return p.chain.each(ctx, "STATUS", args, false)
}

func (c *podCall) key() podstate.Key {
	return podstate.Key{ContainerID: c.args.ContainerID, IfName: c.args.IfName}
}
