package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// Network joins containers to an isolated network of the cluster: the other end of
// their link is in the network's namespace on this host, which the agent looks after.
func Network(x *plugin.Exec) skel.Plugin {
	n := network{dir: local.Open("", "")}
	p := serve(NetworkType, "joins a container to an isolated network of the cluster", n, x)
	inner := p.Funcs
	within := func(do func(context.Context, *skel.CmdArgs) error) func(context.Context, *skel.CmdArgs) error {
		return func(ctx context.Context, args *skel.CmdArgs) error {
			return n.within(ctx, args, func(ctx context.Context) error { return do(ctx, args) })
		}
	}
	p.Funcs.Add = func(ctx context.Context, args *skel.CmdArgs) (r *cni.Result, err error) {
		if err := n.here(ctx, args); err != nil {
			return nil, err
		}
		err = n.within(ctx, args, func(ctx context.Context) error { r, err = inner.Add(ctx, args); return err })
		return r, err
	}
	p.Funcs.Check, p.Funcs.Del, p.Funcs.GC = within(inner.Check), within(inner.Del), within(inner.GC)
	return p
}

// NetworkType is the name of the plugin Network.
const NetworkType = "fairlead-net"

// InNetwork calls f with what Network has ptp make, in the network's namespace if that
// is on this host, and returns the path where it is to be.
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

// ValidateNetwork refuses a configuration of which ADD could say no network.
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

// here waits until the agent has the network's namespace on this host.
func (n network) here(ctx context.Context, args *skel.CmdArgs) error {
	c, _, err := n.parse(args)
	if err != nil {
		return err
	}
	if ns, absent := netns.Open(local.NetnsPath(c.Network)); absent == nil {
		ns.Close()
		return nil // it is here, and goes on without the agent
	}
	err = n.dir.Call(ctx, local.OpBlock, local.BlockArgs{Network: c.Network}, nil)
	if err == nil {
		err = n.dir.Call(ctx, local.OpNetwork, local.NetworkArgs{Network: c.Network}, nil)
	}
	if _, away := errors.AsType[*local.AwayError](err); away {
		return cni.Errorf(cni.CodeTryAgainLater, "network %s: %w", c.Network, err)
	}
	if said, ok := errors.AsType[*local.Error](err); ok {
		return cni.Errorf(said.Code, "network %s: %w", c.Network, err)
	}
	return err
}

// within runs f with the network's namespace for the host. Where that is gone there
// is nothing in it, and what else there is is removed from here.
func (n network) within(ctx context.Context, args *skel.CmdArgs, f func(context.Context) error) error {
	c, _, err := n.parse(args)
	if err != nil && c.Network == "" {
		return err
	}
	path := local.NetnsPath(c.Network)
	ns, err := netns.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return f(plugin.WithHost(ctx, path))
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error { return f(plugin.WithHost(ctx, path)) })
}

// rewrite makes a configuration of ptp: a link of its own, routed on both sides.
func (n network) rewrite(_ string, args *skel.CmdArgs) (conf, error) {
	c, from, err := n.parse(args)
	if err != nil {
		return nil, err
	}
	out := conf{}
	out.passed(from)
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
		addresses["network"], _ = json.Marshal(c.Network) // a string
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
