package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// Network returns the plugin that connects containers to an isolated network of the cluster. The other end of their
// link is in the network's namespace on this host, which the agent manages.
func Network(x *plugin.Exec) skel.Plugin {
	n := network{dir: local.Open("", "")}
	p := serve(NetworkType, "connects a container to an isolated network of the cluster", n, x)
	inner := p.Funcs
	within := func(do func(context.Context, *skel.CmdArgs) error) func(context.Context, *skel.CmdArgs) error {
		return func(ctx context.Context, args *skel.CmdArgs) error {
			return n.within(ctx, args, func(ctx context.Context) error { return do(ctx, args) })
		}
	}
	p.Funcs.Add = func(ctx context.Context, args *skel.CmdArgs) (r *cni.Result, err error) {
		ns, err := n.hold(ctx, args)
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		defer ns.Unlock()
		if ns.IsAt(args.Netns) {
			return nil, cni.Errorf(cni.CodeInvalidNetns, "CNI_NETNS=%s is the namespace of the network itself: want the container's", args.Netns)
		}
		err = n.in(ctx, ns, func(ctx context.Context) error { r, err = inner.Add(ctx, args); return err })
		return r, err
	}
	p.Funcs.Check, p.Funcs.GC = within(inner.Check), within(inner.GC)
	p.Funcs.Del = func(ctx context.Context, args *skel.CmdArgs) error {
		args, err := n.removable(args)
		if args == nil || err != nil {
			return err
		}
		return within(inner.Del)(ctx, args)
	}
	return p
}

// NetworkType is the name of the plugin Network.
const NetworkType = "fairlead-net"

// InNetwork calls f with the ptp configuration that Network uses, in the network's namespace if it exists on this host.
// It returns the path of that namespace.
func InNetwork(ctx context.Context, args *skel.CmdArgs, f func(context.Context, *skel.CmdArgs) error) (path string, err error) {
	n := network{dir: local.Open("", "")}
	c, err := n.rewrite("ADD", args)
	if err != nil {
		return "", err
	}
	inner := *args
	if inner.StdinData, err = json.Marshal(c); err != nil {
		return "", err
	}
	of, _, err := n.parse(args)
	if err != nil {
		return "", err
	}
	return local.NetnsPath(of.Network), n.within(ctx, args, func(ctx context.Context) error { return f(ctx, &inner) })
}

// ValidateNetwork rejects a configuration without a valid network name.
func ValidateNetwork(data []byte) error {
	_, _, err := network{}.parse(&skel.CmdArgs{StdinData: data})
	return err
}

type network struct{ dir local.Dir }

type networkConf struct {
	cni.PluginConf
	Network string `json:"network"`
	MTU     int    `json:"mtu"`
	IPAM    conf   `json:"ipam"`
}

func (n network) parse(args *skel.CmdArgs) (c networkConf, from conf, err error) {
	if err = cni.Decode(args.StdinData, &from); err == nil {
		err = cni.Decode(args.StdinData, &c)
	}
	if err == nil && cni.ValidateNetworkName(c.Network) != nil {
		err = cni.Invalid(args.StdinData, "network", `want the name of an isolated network of the cluster: "fairlead network list" shows them`)
	}
	return c, from, err
}

// The limits of hold. Any user can hold the lock of the network's namespace, so the wait for it is short, and ADD goes on
// without it.
const (
	holdPatience = 10 * time.Second
	holdPause    = 20 * time.Millisecond
	lockPatience = 2 * time.Second
)

// hold returns the network's namespace on this host, locked: the agent removes a namespace without containers only if it
// gets the lock. If there is no namespace, hold asks the agent for it.
func (n network) hold(ctx context.Context, args *skel.CmdArgs) (*netns.Handle, error) {
	c, _, err := n.parse(args)
	if err != nil {
		return nil, err
	}
	if _, err := n.dir.Read(c.Network); errors.Is(err, os.ErrNotExist) { // the namespace may exist for a peer, but the MTU is in the file
		if err := n.waitForNetns(ctx, c.Network); err != nil {
			return nil, err
		}
	}
	path := local.NetnsPath(c.Network)
	for end := time.Now().Add(holdPatience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(holdPause) {
		ns, err := netns.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			if err := n.waitForNetns(ctx, c.Network); err != nil {
				return nil, err
			}
			ns, err = netns.Open(path)
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lockFor(ctx, ns)
		if ns.IsAt(path) {
			return ns, nil
		}
		ns.Unlock()
		ns.Close()
	}
	return nil, cni.Errorf(cni.CodeTryAgainLater, "network %s: the agent removes the namespace %s at the moment: try again", c.Network, path)
}

func lockFor(ctx context.Context, ns *netns.Handle) {
	ctx, cancel := context.WithTimeout(ctx, 2*lockPatience) // LockShared leaves a half for the work
	defer cancel()
	_ = ns.LockShared(ctx)
}

// waitForNetns waits until the agent has created the network's namespace on this host.
func (n network) waitForNetns(ctx context.Context, name string) error {
	err := n.dir.Call(ctx, local.OpBlock, local.BlockArgs{Network: name}, nil)
	if err == nil {
		err = n.dir.Call(ctx, local.OpNetwork, local.NetworkArgs{Network: name}, nil)
	}
	if _, away := errors.AsType[*local.AwayError](err); away || err != nil && ctx.Err() != nil {
		return cni.Errorf(cni.CodeTryAgainLater, "network %s: %w", name, err)
	}
	if e, ok := errors.AsType[*local.Error](err); ok {
		return cni.Errorf(e.Code, "network %s: %w", name, err)
	}
	return err
}

// removable returns arguments with which DEL can run. If ADD refuses the configuration, the record of the attachment has
// the network; without a record there is nothing to remove, and removable returns nil.
func (n network) removable(args *skel.CmdArgs) (*skel.CmdArgs, error) {
	if _, _, err := n.parse(args); err == nil {
		return args, nil
	}
	conf, err := reduced(args.StdinData)
	if err != nil {
		return nil, err
	}
	record, err := attach.Open("").Read(kernel.Owner{Network: conf.String("name"), ContainerID: args.ContainerID, IfName: args.IfName})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	name, _ := local.IsolatedNetwork(record.Host)
	conf.SetString("network", name)
	return withConf(args, conf), nil
}

// within runs f with the network's namespace as the host. If that namespace is gone, f runs here: the rest of the
// attachment can still be removed. ADD uses hold and in: a container must not be attached to this namespace.
func (n network) within(ctx context.Context, args *skel.CmdArgs, f func(context.Context) error) error {
	c, _, err := n.parse(args)
	if err != nil {
		return err
	}
	path := local.NetnsPath(c.Network)
	ns, err := netns.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := plugin.Finish(ctx); err != nil {
			return err
		}
		return f(plugin.WithHost(ctx, path))
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return n.in(ctx, ns, f)
}

// in runs f with a network's namespace as the host.
func (n network) in(ctx context.Context, ns *netns.Handle, f func(context.Context) error) error {
	if err := plugin.Finish(ctx); err != nil {
		return err
	}
	return ns.Do(func() error { return f(plugin.WithHost(ctx, ns.Path())) })
}

// rewrite returns a ptp configuration: a routed veth pair.
func (n network) rewrite(_ string, args *skel.CmdArgs) (conf, error) {
	c, from, err := n.parse(args)
	if err != nil {
		return nil, err
	}
	out := conf{}
	out.copyRuntimeKeys(from)
	out.set("type", "ptp")
	mtu := c.MTU
	if here, err := n.dir.Read(c.Network); err == nil && mtu == 0 {
		mtu = here.MTU
	}
	if mtu > 0 {
		out.set("mtu", mtu)
	}
	addresses := c.IPAM
	if addresses == nil {
		addresses = conf{}
	}
	addresses.set("type", "fairlead-ipam")
	if string(addresses["type"]) == `"fairlead-ipam"` {
		addresses["network"], _ = json.Marshal(c.Network) // a string always marshals
	}
	out.set("ipam", addresses)
	for _, key := range []string{"dns", "args", "antiSpoof"} {
		if v, ok := from[key]; ok {
			out[key] = v
		}
	}
	return out, nil
}

func (network) done(string, *skel.CmdArgs, time.Time) error { return nil }
