package ovs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/kernel"
)

// The external IDs by which a port's and an interface's owner is known. A tunnel
// has the network's alone.
const (
	idNetwork   = "fairlead-network"
	idContainer = "fairlead-container"
	idInterface = "fairlead-interface"
)

// rows are a port of a bridge and its interface, without names and references.
type rows struct{ port, iface ovsdb.Row }

func portRows(p *kernel.OVSPort) rows {
	owner := map[string]string{idNetwork: p.Owner.Network, idContainer: p.Owner.ContainerID, idInterface: p.Owner.IfName}
	port := vlanRow(p.VLAN)
	port["external_ids"] = ovsMap(owner)
	ids := maps.Clone(owner)
	if p.IfaceID != "" {
		ids["iface-id"] = p.IfaceID
	}
	iface := ovsdb.Row{"external_ids": ovsMap(ids)}
	if p.OFPort > 0 {
		iface["ofport_request"] = p.OFPort
	}
	return rows{port, iface}
}

func tunnelRows(t *kernel.OVSTunnel) rows {
	options := map[string]string{"key": strconv.Itoa(t.VNI), "remote_ip": t.Remote}
	if t.Local != "" {
		options["local_ip"] = t.Local
	}
	if t.Port > 0 {
		options["dst_port"] = strconv.Itoa(t.Port)
	}
	port := vlanRow(t.VLAN)
	port["protected"] = t.Protected
	port["external_ids"] = ovsMap(map[string]string{idNetwork: t.Network})
	return rows{port, ovsdb.Row{"type": "vxlan", "options": ovsMap(options)}}
}

// vlanRow states each column, so that what should not be set is seen, too.
func vlanRow(v kernel.VLANs) ovsdb.Row {
	r := ovsdb.Row{"tag": ovsSet[int](), "trunks": ovsSet(ids(v.Trunks)...), "vlan_mode": ovsSet[string]()}
	if v.Tag > 0 {
		r["tag"] = v.Tag
	}
	if v.Tag > 0 && v.Trunks != "" {
		r["vlan_mode"] = "native-untagged"
	}
	return r
}

// owner is who a port belongs to; nobody: it is not ours, or a tunnel.
func owner(r row) kernel.Owner {
	id := r.strings("external_ids")
	return kernel.Owner{Network: id[idNetwork], ContainerID: id[idContainer], IfName: id[idInterface]}
}

// ensurePort makes a port. A row that the owner left behind (the host was
// started anew: the database lasts, the veth does not) is replaced.
func (d *db) ensurePort(p *kernel.OVSPort) (made bool, err error) {
	old, err := d.named("Port", p.Name, "_uuid", "external_ids")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if err == nil && owner(old) != p.Owner {
		return false, fmt.Errorf("Open vSwitch has a port %s already, which is not this attachment's: %v", p.Name, old.strings("external_ids"))
	}
	if err := d.put(p.Bridge, p.Name, portRows(p), old); err != nil {
		return true, err
	}
	return true, nil
}

// ensureTunnel makes a tunnel, or brings the network's own up to date. One that
// another network has otherwise is an error: the two would be one.
func (d *db) ensureTunnel(t *kernel.OVSTunnel) error {
	want := tunnelRows(t)
	diff, err := d.diffPort(t.Bridge, t.Name, want)
	if err == nil && len(diff) == 0 {
		return nil
	}
	old, err := d.named("Port", t.Name, "_uuid", "external_ids")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if of := owner(old).Network; err == nil && of != t.Network {
		other, err := d.diffPort(t.Bridge, t.Name, without(want))
		if err != nil || len(other) == 0 {
			return err
		}
		return fmt.Errorf("network %q has this tunnel otherwise (%s): give this one another vxlanID or bridge", of, other[0])
	}
	if err := d.put(t.Bridge, t.Name, want, old); err != nil {
		// A tunnel is shared, so no undo takes this one away.
		return errors.Join(err, d.drop(t.Name))
	}
	return nil
}

// without is a tunnel whoever it was made for.
func without(r rows) rows {
	r.port = maps.Clone(r.port)
	delete(r.port, "external_ids")
	return r
}

// put makes a port of a bridge, in place of an old one if there is one, and waits
// until it is in use.
func (d *db) put(bridge, name string, want rows, old row) error {
	b, err := d.named("Bridge", bridge, "_uuid")
	if err != nil {
		return err
	}
	port, iface := maps.Clone(want.port), maps.Clone(want.iface)
	port["name"], iface["name"], port["interfaces"] = name, name, ovsdb.UUID{GoUUID: "iface"}
	var ops []ovsdb.Operation
	if old != nil {
		ops = append(ops, mutate("Bridge", includes("ports", ovsSet(old.uuid())), "ports", ovsdb.MutateOperationDelete, old.uuid()))
	}
	ops = append(ops, insert("Interface", "iface", iface), insert("Port", "port", port),
		mutate("Bridge", is("_uuid", b.uuid()), "ports", ovsdb.MutateOperationInsert, ovsdb.UUID{GoUUID: "port"}))
	if err := d.change(ops...); err != nil {
		return err
	}
	problem, err := d.settled(name)
	if problem != "" {
		err = errors.New(problem)
	}
	return err
}

// drop takes a port from its bridge; the database throws away what nothing
// refers to.
func (d *db) drop(name string) error {
	r, err := d.named("Port", name, "_uuid")
	if err != nil {
		return err
	}
	_, err = d.do(mutate("Bridge", includes("ports", ovsSet(r.uuid())), "ports", ovsdb.MutateOperationDelete, r.uuid()))
	return err
}

func (d *db) diffPort(bridge, name string, want rows) ([]string, error) {
	port, err := d.named("Port", name, append(columns(want.port), "_uuid")...)
	if err != nil {
		return nil, err
	}
	iface, err := d.named("Interface", name, columns(want.iface)...)
	if err != nil {
		return nil, err
	}
	out := append(port.differs(want.port), iface.differs(want.iface)...)
	on, err := d.find("Bridge", includes("ports", ovsSet(port.uuid())), "name")
	if err == nil && (len(on) != 1 || on[0].text("name") != bridge) {
		out = append(out, "is on another bridge")
	}
	problem, e := d.settled(name)
	if problem != "" {
		out = append(out, problem)
	}
	return out, errors.Join(err, e)
}

func (d *db) removePort(p *kernel.OVSPort) error {
	have, err := d.named("Port", p.Name, "external_ids")
	if err != nil {
		return err
	}
	if owner(have) != p.Owner {
		return nil // somebody else's
	}
	return d.drop(p.Name)
}

func (d *db) removeMarked(network string, dead func(mark string) bool) error {
	list, err := d.find("Port", includes("external_ids", ovsMap(map[string]string{idNetwork: network})), "name", "external_ids")
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range list {
		o := owner(p)
		if o.ContainerID == "" || !dead(o.Mark()) {
			continue
		}
		if err := d.drop(p.text("name")); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove port %s: %w", p.text("name"), err))
		}
	}
	return errors.Join(errs...)
}
