package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/podnet/request"
)

// planned is a network to attach.
type planned struct {
	podstate.Attachment
	asked *request.Network // what the pod requests, which the result must have
	alone bool             // it uses a link of another network
}

// plan finds all mistakes before the first change. It returns the networks in the order of their ADDs: the default
// network, the others in the pod's order, and then networks that use links of other networks.
func (c *podCall) plan(ctx context.Context, r *podRequest) ([]planned, error) {
	var first, last []planned
	var errs []error
	have := devices{}
	for i := range r.Networks {
		n := &r.Networks[i]
		p, err := c.planOne(ctx, r, n, i, have)
		if err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", nameOf(n, c.network), err))
		} else if p.alone && i > 0 {
			last = append(last, *p)
		} else {
			first = append(first, *p)
		}
	}
	return append(first, last...), errors.Join(errs...)
}

func nameOf(n *request.Network, network string) string {
	if n.Name == "" {
		return network
	}
	return strings.TrimPrefix(n.Namespace+"/"+n.Name, "/")
}

func (c *podCall) planOne(ctx context.Context, r *podRequest, n *request.Network, i int, have devices) (*planned, error) {
	list, resource, err := c.listFor(ctx, n)
	if err != nil {
		return nil, err
	}
	if resource != "" && n.DeviceID == "" {
		if n.DeviceID, err = c.next(ctx, have, r, resource); err != nil {
			return nil, err
		}
	}
	changes := []func(int, *rawjson.Object) error{withDevice(n.DeviceID)}
	if len(n.Args) > 0 {
		changes = append(changes, each(request.WithArgs(n.Args)))
	}
	if r.chosen {
		changes = append(changes, each(request.WithDefaultRoute(n.DefaultRoute)))
	}
	names, err := declared(list)
	if err != nil {
		return nil, err
	}
	if c := n.WithCapabilities(withAddresses(names)); c != nil {
		changes = append(changes, func(position int, plugin *rawjson.Object) error {
			if position > 0 {
				return nil
			}
			return c(plugin)
		})
	}
	if err := edit(list, changes...); err != nil {
		return nil, err
	}
	if i > 0 || n.Name != "" { // a pod may replace the default network
		if err := c.addPolicyLike(list); err != nil {
			return nil, err
		}
	}
	p := &planned{asked: n, Attachment: podstate.Attachment{
		Namespace: n.Namespace, Name: nameOf(&request.Network{Name: n.Name}, c.network), IfName: n.InterfaceName(i), Default: i == 0, DeviceID: n.DeviceID,
		NoCheck: isTrue(list.Bytes(), "disableCheck"), Config: list.Bytes(),
	}}
	list.Delete("disableCheck") // a key for runtimes
	p.Config = list.Bytes()
	if p.RuntimeConfig, err = c.arguments(list, n, i == 0); err != nil {
		return nil, err
	}
	// The record has no spaces. ADD must use the same bytes: a plugin recognizes its configuration by a hash.
	if p.Config, err = json.Marshal(p.Config); err == nil && len(p.RuntimeConfig) > 0 {
		p.RuntimeConfig, err = json.Marshal(p.RuntimeConfig)
	}
	if err != nil {
		return nil, err
	}
	l, err := read(p.Config)
	if err != nil {
		return nil, err
	}
	for _, m := range l.members {
		p.alone = p.alone || isTrue(m.Raw, "linkInContainer")
	}
	return p, l.locate(c.args.Path)
}

func each(change func(*rawjson.Object) error) func(int, *rawjson.Object) error {
	return func(_ int, plugin *rawjson.Object) error { return change(plugin) }
}

// listFor returns a network's list of plugins, and the resource whose devices belong to it.
func (c *podCall) listFor(ctx context.Context, n *request.Network) (list *rawjson.Object, resource string, err error) {
	if n.Name == "" {
		list, err = defaultList(c.args.StdinData)
		return list, "", err
	}
	s, err := c.find(ctx, n)
	if err == nil {
		list, err = listOf(s.config, n.Name)
	}
	if err == nil {
		err = cni.CheckVersion(s.config, list.String("cniVersion"))
	}
	if err == nil && isTrue(s.config, "disableCheck") {
		list.Set("disableCheck", []byte("true"))
	}
	return list, s.resource, err
}

// arguments returns a network's runtimeConfig: what the pod asks for, for the default network what the runtime passed,
// and the pod's annotations.
func (c *podCall) arguments(list *rawjson.Object, n *request.Network, isDefault bool) ([]byte, error) {
	names, err := declared(list)
	if err != nil {
		return nil, err
	}
	known := append(withAddresses(names), "deviceID") // the plugins' configurations have it: see withDevice
	asked, err := n.CapabilityArgs(list.String("name"), known)
	if err != nil {
		return nil, err
	}
	from := c.runtime
	if isDefault {
		if err := c.addRuntimes(asked); err != nil {
			return nil, err
		}
	} else {
		from, _ = rawjson.ParseObject([]byte("{}"))
		if raw, ok := c.runtime.Get(PodAnnotations); ok {
			from.Set(PodAnnotations, raw)
		}
	}
	return narrowed(from, asked, names)
}

// withAddresses adds the capability ips to those that a list declares if a plugin reads addresses from the annotations.
func withAddresses(names []string) []string {
	names = slices.Clone(names)
	if slices.Contains(names, PodAnnotations) {
		names = append(names, "ips")
	}
	return names
}

// addRuntimes adds the runtime's host ports and rates for the default network to those of the pod's annotations.
func (c *podCall) addRuntimes(asked map[string]any) error {
	if own, ok := asked["portMappings"].([]request.PortMapping); ok {
		ports, err := runtimes[[]request.PortMapping](c, "portMappings")
		if err != nil {
			return err
		}
		for _, p := range own {
			if !slices.Contains(ports, p) {
				ports = append(ports, p)
			}
		}
		asked["portMappings"] = ports
	}
	if b, ok := asked["bandwidth"].(request.Bandwidth); ok {
		have, err := runtimes[request.Bandwidth](c, "bandwidth")
		if err != nil {
			return err
		}
		if b.IngressRate == 0 {
			b.IngressRate, b.IngressBurst = have.IngressRate, have.IngressBurst
		}
		if b.EgressRate == 0 {
			b.EgressRate, b.EgressBurst = have.EgressRate, have.EgressBurst
		}
		asked["bandwidth"] = b
	}
	return nil
}

// runtimes returns a capability's argument that the runtime passed, or the zero value.
func runtimes[T any](c *podCall, capability string) (v T, err error) {
	raw, ok := c.runtime.Get(capability)
	if !ok {
		return v, nil
	}
	if err := rawjson.Decode(raw, &v); err != nil {
		return v, cni.Invalid(c.args.StdinData, "runtimeConfig", capability+": "+err.Error())
	}
	return v, nil
}
