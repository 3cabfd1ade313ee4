package chain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/internal/bootid"
	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// PolicyType is the name of the plugin Policy.
const PolicyType = "fairlead-policy"

// Policy returns the plugin with which ADD waits until the node agent enforces network policy for a container.
func Policy() skel.Plugin {
	return skel.Plugin{
		Name: PolicyType, About: "waits until network policy is in force for a container", AnyNetns: true,
		Funcs: skel.CNIFuncs{Add: policyAdd, Check: policyCheck, Del: policyDel, GC: policyGC},
	}
}

// policyConf is the configuration of one call.
type policyConf struct {
	cni.PluginConf
	labelSources
	endpoint podstate.Endpoint
	prev     *cni.Result
	dir      local.Dir
	state    podstate.Dir
}

// policyOf returns what DEL needs: nothing of the configuration, which ADD may have refused.
func policyOf(args *skel.CmdArgs) *policyConf {
	c := &policyConf{dir: local.Open("", ""), endpoint: podstate.Endpoint{ContainerID: args.ContainerID, IfName: args.IfName}}
	c.state = podstate.Open(c.dir)
	return c
}

// readPolicy reads the configuration. GC needs no prevResult.
func readPolicy(ctx context.Context, args *skel.CmdArgs, needsPrev bool) (*policyConf, error) {
	c := policyOf(args)
	if err := cni.Decode(args.StdinData, c); err != nil {
		return nil, err
	}
	c.endpoint.Network = c.Name
	if !needsPrev {
		return c, nil
	}
	if !c.HasPrevResult() {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "%s must be called as chained plugin: put it after another plugin in the list, whose result it needs as prevResult", PolicyType)
	}
	var err error
	if c.prev, err = wire.DecodePrev(args.StdinData, c.CNIVersion, c.RawPrevResult); err != nil {
		return nil, err
	}
	pod, err := cni.ParseArgs(args.Args)
	if err != nil {
		return nil, err
	}
	c.endpoint.Namespace, _ = pod.Get("K8S_POD_NAMESPACE")
	c.endpoint.Name, _ = pod.Get("K8S_POD_NAME")
	c.endpoint.UID, _ = pod.Get("K8S_POD_UID")
	c.endpoint.Addresses = containerAddrs(c.prev)
	if err := c.readRecord(ctx, args.Netns); err != nil {
		return nil, err
	}
	c.endpoint.Labels, err = c.labels(pod)
	return c, err
}

// forwarded are the plugins of links whose packets the host forwards.
func forwarded() []string { return []string{"bridge", "ptp"} }

// readRecord reads from the attachment's record where its packets are forwarded: in the host's namespace or in that of an
// isolated network, and by routes or on a bridge. A container also reaches its node, and others on its bridge, by its
// link-local address.
func (c *policyConf) readRecord(ctx context.Context, netnsPath string) error {
	if !c.applies() {
		c.endpoint.Direct = "a plugin without addresses"
		return nil
	}
	o := kernel.Owner{Network: c.Name, ContainerID: c.endpoint.ContainerID, IfName: c.endpoint.IfName}
	r, err := plugin.Record(ctx, o)
	if errors.Is(err, fs.ErrNotExist) { // another project's plugin attached the container
		if isDirect(netnsPath, c.endpoint.IfName) {
			c.endpoint.Direct = "another project's plugin"
		}
		return nil
	}
	if err != nil {
		return err
	}
	c.endpoint.Isolated, _ = local.IsolatedNetwork(r.Host)
	if len(r.Parts) > 0 && !slices.Contains(forwarded(), r.Parts[0].Plugin) {
		c.endpoint.Direct = r.Parts[0].Plugin
	}
	if r.Last("bridge") >= 0 {
		for _, ip := range c.prev.IPs {
			c.endpoint.Bridged = append(c.endpoint.Bridged, ip.Address)
		}
	}
	for _, i := range c.prev.Interfaces {
		if a := hwaddr.LinkLocal(i.Mac); i.Sandbox != "" && !a.IsUnspecified() {
			c.endpoint.Addresses = append(c.endpoint.Addresses, a)
		}
	}
	return nil
}

// isDirect reports whether the host does not forward the packets of a container's interface, whatever plugin created it: the
// interface is no pair whose other end is on the host.
func isDirect(path, ifName string) (direct bool) {
	_ = kernel.At(path, func(e *kernel.Engine) error {
		l, err := e.Link(kernel.Container, ifName)
		if err == nil {
			_, err = e.OtherEnd(l)
			direct = err != nil
		}
		return nil
	})
	return direct
}

// applies reports whether policy can apply to the container.
func (c *policyConf) applies() bool { return len(c.endpoint.Addresses) > 0 }

// containerAddrs returns the addresses in a result that are the container's.
func containerAddrs(r *cni.Result) (out []netip.Addr) {
	for _, ip := range r.IPs {
		if i := r.InterfaceOf(ip); i == nil || i.Sandbox != "" {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}

func policyAdd(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	c, err := readPolicy(ctx, args, true)
	if err != nil {
		return nil, err
	}
	if c.endpoint.Boot, err = bootid.Read(); err != nil {
		return nil, err
	}
	c.endpoint.Uptime = kernel.Uptime()
	if err := c.state.WriteEndpoint(&c.endpoint); err != nil {
		return nil, err
	}
	if !c.applies() {
		return c.prev, nil // the agent finds the file later, and counts the interface
	}
	if err := c.call(ctx); err != nil {
		err = fmt.Errorf("network policy of %s: %w", c.what(), err)
		return nil, errors.Join(err, c.remove(context.WithoutCancel(ctx)))
	}
	return c.prev, nil
}

// what names the container in errors.
func (c *policyConf) what() string {
	if c.endpoint.Name == "" {
		return "container " + c.endpoint.ContainerID
	}
	return "pod " + c.endpoint.Namespace + "/" + c.endpoint.Name
}

// call asks the agent to read the endpoint's file. An agent without policy answers, too.
func (c *policyConf) call(ctx context.Context) error {
	err := c.dir.Call(ctx, podstate.OpPolicy, c.endpoint.Key(), nil)
	if _, ok := errors.AsType[*local.AwayError](err); ok {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", err)
	}
	if e, ok := errors.AsType[*local.Error](err); ok {
		return cni.Errorf(e.Code, "%w", err)
	}
	return err
}

// policyCheck reports an endpoint that the agent cannot know, or knows with other addresses.
func policyCheck(ctx context.Context, args *skel.CmdArgs) error {
	c, err := readPolicy(ctx, args, true)
	if err != nil || !c.applies() {
		return err
	}
	have, err := c.state.Endpoint(c.endpoint.Key())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("network policy is not in force for container %s: its ADD did not run %s: run DEL and ADD", args.ContainerID, PolicyType)
	}
	if err != nil {
		return err
	}
	if !slices.Equal(have.Addresses, c.endpoint.Addresses) {
		return fmt.Errorf("network policy of container %s is for %v, its addresses are %v: run DEL and ADD", args.ContainerID, have.Addresses, c.endpoint.Addresses)
	}
	return nil
}

// goneWithin limits the message to the agent that an endpoint has gone. The agent also finds out by itself.
const goneWithin = 2 * time.Second

func policyDel(ctx context.Context, args *skel.CmdArgs) error {
	return policyOf(args).remove(ctx)
}

func (c *policyConf) remove(ctx context.Context) error {
	_, err := c.state.Endpoint(c.endpoint.Key())
	if removeErr := c.state.RemoveEndpoint(c.endpoint.Key()); removeErr != nil || errors.Is(err, fs.ErrNotExist) {
		return removeErr
	}
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	_ = c.call(ctx)
	return nil
}

func (c *policyConf) isValid(k podstate.Key) bool {
	return slices.Contains(c.ValidAttachments, cni.Attachment{ContainerID: k.ContainerID, IfName: k.IfName})
}

// policyGC removes this network's endpoints that are not valid, unless they were added after the collection began.
func policyGC(ctx context.Context, args *skel.CmdArgs) error {
	ctx, start := plugin.GCStart(ctx)
	c, err := readPolicy(ctx, args, false)
	if err != nil {
		return err
	}
	keys, err := c.state.Endpoints()
	errs := []error{err}
	for _, k := range c.state.UnfinishedEndpoints(time.Now().Add(start - kernel.Uptime())) {
		if !slices.Contains(keys, k) && !c.isValid(k) {
			errs = append(errs, c.state.RemoveEndpoint(k))
		}
	}
	for _, k := range keys {
		e, err := c.state.Endpoint(k)
		if errors.Is(err, fs.ErrNotExist) && !c.isValid(k) { // gone, or damaged by a power failure
			errs = append(errs, c.state.RemoveEndpointOfEarlierBoot(k))
		}
		if err != nil || e.Network != c.Name || c.isValid(k) {
			continue
		}
		if boot, err := bootid.Read(); err != nil || e.Boot == boot && e.Uptime >= start {
			continue
		}
		gone := *c
		gone.endpoint = *e
		errs = append(errs, gone.remove(ctx))
	}
	return errors.Join(errs...)
}
