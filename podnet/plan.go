package podnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/podnet/request"
)

// part is one attachment of a pod: its stored state and the work to do.
type part struct {
	noted
	list    *libcni.NetworkConfigList
	rt      *libcni.RuntimeConf
	asked   Network // what the pod requests
	lenient bool    // other addresses than the requested ones are a warning
	planned bool    // the pod chooses the network of its default route
	alone   bool    // uses another network's link: set up after the others, torn down before them
	ordered bool    // set up in the pod's order, because it brings a default route and the last one wins
}

// plan finds all errors in a pod's requests before a plugin runs.
func (m *Manager) plan(ctx context.Context, p *Pod) ([]*part, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	wishes := requested(p)
	chosen := slices.ContainsFunc(wishes, func(n Network) bool { return n.DefaultRoute != nil })
	var parts []*part
	var errs []error
	for i := range wishes {
		part, err := m.planOne(ctx, p, &wishes[i], i, chosen)
		parts, errs = append(parts, part), append(errs, err)
	}
	return parts, errors.Join(errs...)
}

// requested returns the networks that a pod asks for: its own, or the default network only.
func requested(p *Pod) []Network {
	if len(p.Networks) == 0 {
		return []Network{{}}
	}
	return p.Networks
}

func (m *Manager) planOne(ctx context.Context, p *Pod, n *Network, i int, chosen bool) (*part, error) {
	list, err := m.network(ctx, n.Namespace, n.Name)
	if err == nil {
		err = list.CheckVersion()
	}
	if err != nil {
		return nil, request.At(i, err)
	}
	changes := []func(*rawjson.Object) error{}
	if len(n.Args) > 0 {
		changes = append(changes, inMembers(request.WithArgs(n.Args)))
	}
	if chosen {
		changes = append(changes, inMembers(request.WithDefaultRoute(n.DefaultRoute)))
	}
	undeclared := n.WithCapabilities(capabilities(list))
	if undeclared != nil {
		changes = append(changes, inFirst(undeclared))
	}
	if list, err = edit(list, changes...); err != nil {
		return nil, request.At(i, err)
	}
	caps, err := n.CapabilityArgs(list.Name, capabilities(list))
	if errors.Is(err, request.ErrUnsupported) && m.options.IgnoreUnsupported {
		m.options.Warn("pod "+p.ID, err)
		err = nil
	}
	if err != nil {
		return nil, request.At(i, err)
	}
	q := &part{list: list, planned: chosen, asked: *n, lenient: undeclared != nil && m.options.IgnoreUnsupported, alone: insideLinks(list), ordered: !chosen && hasWayOut(list), noted: noted{
		Network: list.Name, Namespace: n.Namespace, IfName: n.InterfaceName(i), Default: i == 0, DeviceID: n.DeviceID,
		Config: list.Bytes, Args: append(p.KubernetesArgs(), p.Args...), CapabilityArgs: caps,
	}}
	q.rt = q.runtimeConf(p.ID, p.Netns)
	return q, m.findPlugins(list)
}

// insideLinks reports whether a plugin of a network uses a link that another network of the pod may create.
func insideLinks(list *libcni.NetworkConfigList) bool {
	return each(list, func(plugin []byte) bool {
		v, ok := rawjson.Find(plugin, "linkInContainer")
		return ok && string(v.Raw) == "true"
	})
}

// hasWayOut reports whether a network's configuration adds a default route.
func hasWayOut(list *libcni.NetworkConfigList) bool {
	return each(list, func(plugin []byte) bool {
		if v, ok := rawjson.Find(plugin, "isDefaultGateway"); ok && string(v.Raw) == "true" {
			return true
		}
		routes, _ := rawjson.Find(plugin, "ipam.routes")
		elements, _ := rawjson.Elements(routes.Raw) // the plugin rejects a value that is not a list
		return slices.ContainsFunc(elements, func(e rawjson.Value) bool { return request.IsDefaultRoute(e.Raw) })
	})
}

// findPlugins checks that all plugins of a network exist. It runs for all networks before the first is set up.
func (m *Manager) findPlugins(list *libcni.NetworkConfigList) error {
	var errs []error
	for _, p := range list.Plugins {
		if _, err := m.exec.FindInPath(p.Network.Type, m.options.PluginDirs); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", list.Name, err))
		}
	}
	return errors.Join(errs...)
}

// network returns a network by name; "" is the default network.
func (m *Manager) network(ctx context.Context, namespace, name string) (*libcni.NetworkConfigList, error) {
	list, err := m.conf.find(name)
	if errors.Is(err, os.ErrNotExist) && name != "" && m.options.Lookup != nil {
		list, err = m.options.Lookup(ctx, namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", strings.TrimPrefix(namespace+"/"+name, "/"), err)
	}
	return list, nil
}

// verify checks that the result has what the pod requested. Some plugins ignore it.
func (m *Manager) verify(q *part, res *cni.Result) error {
	if q.planned {
		if err := request.CheckRoutes(q.Network, q.asked.DefaultRoute, res); err != nil {
			return err
		}
	}
	err := q.asked.CheckAddresses(q.Network, q.IfName, res)
	if err != nil && q.lenient {
		m.options.Warn("pod "+q.rt.ContainerID, err)
		return nil
	}
	return err
}
