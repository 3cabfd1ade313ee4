package ovs

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/kernel"
)

// ensurePort creates a port. It replaces a row of the same owner that survived a reboot: the database persists, the
// veth does not.
func (d *db) ensurePort(p *kernel.OVSPort) (made bool, err error) {
	old, err := d.named("Port", p.Name, "_uuid", "external_ids")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if err == nil && owner(old) != p.Owner {
		return false, fmt.Errorf("Open vSwitch already has a port %s of another owner (external_ids %v): remove it with \"ovs-vsctl del-port %[1]s\"", p.Name, old.strings("external_ids"))
	}
	return d.put(p.Bridge, p.Name, portRows(p), old)
}

// restorePort replaces a port, whatever its settings and its owner are.
func (d *db) restorePort(p *kernel.OVSPort) error {
	old, err := d.named("Port", p.Name, "_uuid")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, err = d.put(p.Bridge, p.Name, portRows(p), old)
	return err
}

// put creates a port of a bridge, replaces an old one if given, and waits until it is in use. made reports whether the
// port is in the database, in use or not.
func (d *db) put(bridge, name string, want rows, old row) (made bool, err error) {
	b, err := d.named("Bridge", bridge, "_uuid")
	if err != nil {
		return false, err
	}
	port, iface := maps.Clone(want.port), maps.Clone(want.iface)
	port["name"], iface["name"], port["interfaces"] = name, name, ovsdb.UUID{GoUUID: "iface"}
	if err := d.awaitRemoval(name, old); err != nil {
		return false, err
	}
	number, err := d.begin(insert("Interface", "iface", iface), insert("Port", "port", port),
		mutate("Bridge", is("_uuid", b.uuid()), "ports", ovsdb.MutateOperationInsert, ovsdb.UUID{GoUUID: "port"}))
	if err != nil {
		return unanswered(err), err
	}
	if err := d.await(number); err != nil {
		return true, err
	}
	return true, d.accepted(name)
}

// awaitRemoval waits until ovs-vswitchd has released removed ports, including old. If it saw the removal and the new
// port of the same name together, it would keep using the old device, which is gone, and set the new one down.
func (d *db) awaitRemoval(name string, old row) (err error) {
	if old != nil {
		err = d.drop(name)
	}
	var rows []row
	if err == nil {
		rows, err = d.find("Open_vSwitch", is("_uuid", d.root), "next_cfg")
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	next, _ := rows[0].number("next_cfg")
	return d.await(next)
}

// inUse waits for a port that another process is creating.
func (d *db) inUse(name string) error {
	if problem, err := d.settled(name); err != nil || problem == "" {
		return err
	}
	number, err := d.begin()
	if err == nil {
		err = d.await(number)
	}
	if err != nil {
		return err
	}
	return d.accepted(name)
}

// accepted is settled with the problem as an error.
func (d *db) accepted(name string) error {
	problem, err := d.settled(name)
	if problem != "" {
		err = errors.New(problem)
	}
	return err
}

// drop removes a port from its bridge. The database then deletes rows without references.
func (d *db) drop(name string) error {
	r, err := d.named("Port", name, "_uuid")
	if err != nil {
		return err
	}
	_, err = d.begin(mutate("Bridge", includes("ports", ovsSet(r.uuid())), "ports", ovsdb.MutateOperationDelete, r.uuid()))
	return err
}

func (d *db) diffPort(bridge, name string, want rows) ([]string, error) {
	out, err := d.diffRows(bridge, name, want)
	if err != nil {
		return nil, err
	}
	problem, err := d.settled(name)
	if problem != "" {
		out = append(out, problem)
	}
	return out, err
}

func (d *db) diffRows(bridge, name string, want rows) ([]string, error) {
	port, err := d.named("Port", name, append(columns(want.port), "_uuid")...)
	if err != nil {
		return nil, err
	}
	iface, err := d.named("Interface", name, columns(want.iface)...)
	if err != nil {
		return nil, err
	}
	out := append(port.differs(want.port), iface.differs(want.iface)...)
	out = append(out, mapExceeds("options", iface.strings("options"), want.absent)...)
	on, err := d.find("Bridge", includes("ports", ovsSet(port.uuid())), "name")
	if err == nil && (len(on) != 1 || on[0].text("name") != bridge) {
		out = append(out, "is on another bridge")
	}
	return out, err
}

func (d *db) removePort(p *kernel.OVSPort) error {
	have, err := d.named("Port", p.Name, "external_ids")
	if err != nil {
		return err
	}
	if owner(have) != p.Owner {
		return nil // of another owner
	}
	return d.drop(p.Name)
}

func (d *db) removeTagged(network string, dead func(tag string) bool) error {
	list, err := d.find("Port", includes("external_ids", ovsMap(map[string]string{idNetwork: network})), "name", "external_ids")
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range list {
		o := owner(p)
		if o.ContainerID == "" || !dead(o.Tag()) {
			continue
		}
		if err := d.drop(p.text("name")); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove port %s: %w", p.text("name"), err))
		}
	}
	return errors.Join(errs...)
}
