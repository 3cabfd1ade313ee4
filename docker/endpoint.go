package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
)

// endpoint is an endpoint of Docker. Its attachment has a record, which says what exists.
type endpoint struct {
	ID        string
	NetworkID string
	Asked     endpointInterface // what Docker chose
	Sandbox   string            `json:",omitempty"` // path of the container's namespace, from Join on
}

// linkName returns the name of the container's link on the host. dockerd renames it when it moves it.
func linkName(id string) string { return kernel.Owner{ContainerID: id}.LinkName("fl") }

func (e *endpoint) owner(n *network) kernel.Owner {
	return kernel.Owner{Network: n.Name, ContainerID: e.ID, IfName: linkName(e.ID)}
}

func (d *Driver) runtimeConf(o kernel.Owner, netns string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: o.ContainerID, NetNS: netns, IfName: o.IfName}
}

// createEndpoint attaches an endpoint, except for what dockerd does itself. dockerd repeats a call whose reply it did
// not get.
func (d *Driver) createEndpoint(ctx context.Context, q *endpointRequest) (any, error) {
	n, err := d.networkOf(q.NetworkID)
	if err != nil {
		return nil, err
	}
	if err := checkID("EndpointID", q.EndpointID); err != nil {
		return nil, err
	}
	defer d.locks.lock(q.EndpointID)()
	e := &endpoint{ID: q.EndpointID, NetworkID: n.ID}
	if q.Interface != nil {
		e.Asked = *q.Interface
	}
	list, err := n.list(e.Asked)
	if err != nil {
		return nil, err
	}
	if _, err := d.endpoints.read(e.ID); err == nil {
		if err := d.detach(ctx, e, n); err != nil {
			return nil, fmt.Errorf("remove an earlier endpoint %s: %w", e.ID, err)
		}
	}
	if err := d.endpoints.write(e.ID, e); err != nil {
		return nil, err
	}
	if err := d.unreserve(ctx, n.reserved(e.Asked)); err != nil {
		return nil, errors.Join(err, d.endpoints.remove(e.ID))
	}
	res, err := d.cni.AddNetworkList(plugin.Staged(ctx), list, d.runtimeConf(e.owner(n), d.hostPath()))
	var out any
	if err == nil {
		out, err = d.created(e, n, res)
	}
	if err != nil {
		return nil, errors.Join(err, d.undo(ctx, e, n))
	}
	return out, nil
}

// undo removes an endpoint that could not be created. dockerd does not know it. If undo fails, the endpoint's file stays,
// and the next comparison with Docker removes the endpoint.
func (d *Driver) undo(ctx context.Context, e *endpoint, n *network) error {
	if err := d.detach(ctx, e, n); err != nil {
		return err
	}
	return d.endpoints.remove(e.ID)
}

// created returns what the driver chose. dockerd rejects a response with an attribute that it chose itself.
func (d *Driver) created(e *endpoint, n *network, res *cni.Result) (any, error) {
	record, err := d.records.Read(e.owner(n))
	if err != nil {
		return nil, err
	}
	list, err := record.Objects()
	if err != nil {
		return nil, err
	}
	out := endpointInterface{}
	if e.Asked.MacAddress == "" && !n.sharesMAC() {
		out.MacAddress = macOf(res, record.IfName)
	}
	for _, a := range kernel.Of[*kernel.Addr](list) {
		p := a.InContainer()
		switch {
		case a.In != kernel.Container:
		case p.Addr().Is4() && e.Asked.Address == "" && out.Address == "":
			out.Address = p.String()
		case p.Addr().Is6() && e.Asked.AddressIPv6 == "" && out.AddressIPv6 == "":
			out.AddressIPv6 = p.String()
		}
	}
	if out == (endpointInterface{}) {
		return endpointResponse{}, nil
	}
	return endpointResponse{&out}, nil
}

func macOf(res *cni.Result, link string) string {
	for _, i := range res.Interfaces {
		if i.Name == link && i.Sandbox != "" {
			return i.Mac
		}
	}
	return ""
}

// known returns an endpoint and its network.
func (d *Driver) known(networkID, endpointID string) (*endpoint, *network, error) {
	n, err := d.networkOf(networkID)
	if err != nil {
		return nil, nil, err
	}
	if err := checkID("EndpointID", endpointID); err != nil {
		return nil, nil, err
	}
	e, err := d.endpoints.read(endpointID)
	if errors.Is(err, os.ErrNotExist) || err == nil && e.NetworkID != n.ID {
		return nil, nil, fmt.Errorf("network %s has no endpoint %s", networkID, endpointID)
	}
	return e, n, err
}

func (d *Driver) endpointInfo(_ context.Context, q *endpointRequest) (any, error) {
	e, n, err := d.known(q.NetworkID, q.EndpointID)
	if err != nil {
		return nil, err
	}
	value := map[string]any{"fairlead.network": n.Name, "fairlead.type": n.Type}
	if r, err := d.records.Read(e.owner(n)); err == nil {
		value["fairlead.state"] = r.State()
		if res, err := r.Parts[0].Result.Get(); err == nil && res != nil {
			value[macAddressValue] = macOf(res, r.IfName)
		}
	}
	return infoResponse{value}, nil
}

// join returns the link to move into a container, and the routes there.
func (d *Driver) join(_ context.Context, q *joinRequest) (any, error) {
	e, n, err := d.known(q.NetworkID, q.EndpointID)
	if err != nil {
		return nil, err
	}
	if q.SandboxKey == "" {
		return nil, errors.New("SandboxKey is empty: want the path of the container's network namespace")
	}
	defer d.locks.lock(e.ID)()
	record, err := d.records.Read(e.owner(n))
	if err != nil {
		return nil, fmt.Errorf("endpoint %s is not attached: %w", e.ID, err)
	}
	if !record.Staged {
		return nil, fmt.Errorf("endpoint %s is in the container at %s already", e.ID, record.Netns)
	}
	out, err := n.joined(record)
	if err != nil {
		return nil, err
	}
	e.Sandbox = q.SandboxKey
	if err := d.endpoints.write(e.ID, e); err != nil {
		return nil, err
	}
	go d.noteMoveSoon(e.ID)
	return out, nil
}

func (n *network) joined(record *attach.Record) (*joinResponse, error) {
	out := &joinResponse{InterfaceName: interfaceName{record.IfName, "eth"}}
	list, err := record.Objects()
	if err != nil {
		return nil, err
	}
	for _, r := range kernel.Of[*kernel.Route](list) {
		if r.In != kernel.Container || r.Dst.Bits() == 0 {
			continue
		}
		// dockerd fails if a route exists. A network's route can be the same as that of the address's prefix.
		if s := static(r.Dst, r.Via); !slices.Contains(out.StaticRoutes, s) {
			out.StaticRoutes = append(out.StaticRoutes, s)
		}
	}
	res, err := record.Parts[0].Result.Get()
	if err != nil || res == nil {
		return out, err
	}
	for _, ip := range res.IPs {
		is4 := ip.Address.Addr().Is4()
		switch {
		case n.Internal:
		case n.routesWithoutGateway():
			out.StaticRoutes = append(out.StaticRoutes, static(everywhere(is4), netip.Addr{}))
		case is4 && ip.Gateway.IsValid():
			out.Gateway = ip.Gateway.String()
		case ip.Gateway.IsValid():
			out.GatewayIPv6 = ip.Gateway.String()
		}
	}
	// Without a gateway dockerd would attach the container to its own bridge docker_gwbridge, too.
	out.DisableGatewayService = out.Gateway == "" && out.GatewayIPv6 == ""
	return out, nil
}

func static(dst netip.Prefix, via netip.Addr) staticRoute {
	if via.IsValid() {
		return staticRoute{dst.String(), viaGateway, via.String()}
	}
	return staticRoute{Destination: dst.String(), RouteType: connected}
}

func everywhere(is4 bool) netip.Prefix {
	if is4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// leave detaches a container. dockerd deletes the endpoint next, and nothing needs its link any more.
func (d *Driver) leave(ctx context.Context, q *endpointRequest) (any, error) {
	e, n, err := d.known(q.NetworkID, q.EndpointID)
	if err != nil {
		return d.gone(q)
	}
	defer d.locks.lock(e.ID)()
	return none{}, d.detach(ctx, e, n)
}

func (d *Driver) deleteEndpoint(ctx context.Context, q *endpointRequest) (any, error) {
	if res, err := d.gone(q); err != nil {
		return res, err
	}
	return none{}, d.remove(ctx, q.EndpointID)
}

// gone answers for an endpoint that may be gone, for example because the host was started again.
func (d *Driver) gone(q *endpointRequest) (any, error) {
	return none{}, errors.Join(checkID("NetworkID", q.NetworkID), checkID("EndpointID", q.EndpointID))
}

// remove detaches an endpoint and forgets it.
func (d *Driver) remove(ctx context.Context, id string) error {
	defer d.locks.lock(id)()
	e, err := d.endpoints.read(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := d.networks.read(e.NetworkID)
	switch {
	case err == nil:
		err = d.detach(ctx, e, n)
	case errors.Is(err, os.ErrNotExist):
		err = d.detachByRecord(ctx, e)
	}
	if err != nil {
		return err
	}
	return d.endpoints.remove(id)
}
