package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// RemoveNetwork removes the tunnels of a network whose attachments are gone, unless another network uses them. It also
// removes a bridge that a network created if the bridge has no ports. socketFile is as in the configuration.
func RemoveNetwork(ctx context.Context, socketFile, network, bridge string) error {
	addr, problem := database(cmp.Or(socketFile, defaultSocket))
	if problem != "" {
		return nil // no ADD of this network succeeded
	}
	s := newSwitch(addr, network)
	defer s.Close()
	d, err := s.open(ctx, addr)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.removeTunnels(network), d.removeUnusedBridge(bridge))
}

func (d *db) removeTunnels(network string) error {
	list, err := d.find("Port", includes("external_ids", ovsMap(map[string]string{idNetwork: network})), append(vlanColumns(), "name", "external_ids")...)
	errs := []error{err}
	for _, p := range list {
		if owner(p).ContainerID != "" {
			continue
		}
		used, err := d.tunnelUsed(p)
		if err == nil && !used {
			err = d.drop(p.text("name"))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove tunnel %s: %w", p.text("name"), err))
		}
	}
	return errors.Join(errs...)
}

func vlanColumns() []string { return []string{"_uuid", "tag", "trunks", "vlan_mode"} }

// tunnelUsed reports whether a container has a port in the VLANs of a tunnel, on the same bridge.
func (d *db) tunnelUsed(tunnel row) (bool, error) {
	bridges, err := d.find("Bridge", includes("ports", ovsSet(tunnel.uuid())), "ports")
	if err != nil || len(bridges) == 0 {
		return false, err
	}
	ports, err := d.find("Port", is("tag", tunnel["tag"]), append(vlanColumns(), "external_ids")...)
	return slices.ContainsFunc(ports, func(p row) bool {
		return owner(p).ContainerID != "" && slices.Contains(bridges[0].uuids("ports"), p.uuid()) &&
			format(p["trunks"]) == format(tunnel["trunks"]) && format(p["vlan_mode"]) == format(tunnel["vlan_mode"])
	}), err
}

// uuids returns a column of references.
func (r row) uuids(column string) (out []ovsdb.UUID) {
	if u, ok := r[column].(ovsdb.UUID); ok {
		return []ovsdb.UUID{u}
	}
	set, _ := r[column].(ovsdb.OvsSet)
	for _, e := range set.GoSet {
		if u, ok := e.(ovsdb.UUID); ok {
			out = append(out, u)
		}
	}
	return out
}

// removeUnusedBridge removes a bridge that Fairlead created and that has only its own port.
func (d *db) removeUnusedBridge(name string) error {
	b, err := d.named("Bridge", name, "ports", "external_ids")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || owner(b).Network == "" || len(b.uuids("ports")) > 1 {
		return err
	}
	return d.removeBridge(name)
}
