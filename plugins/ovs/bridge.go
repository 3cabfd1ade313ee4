package ovs

import (
	"errors"
	"fmt"
	"os"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// ensureBridge creates a bridge if it does not exist. If the switch cannot set it up, it removes the bridge again,
// because no undo removes a shared object.
func (d *db) ensureBridge(b *kernel.OVSBridge, network string) error {
	_, err := d.named("Bridge", b.Name, "_uuid")
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	number, err := d.begin(d.bridgeOps(b, network)...)
	if _, taken := errors.AsType[*ovsdb.ConstraintViolation](err); taken {
		if _, e := d.named("Bridge", b.Name, "_uuid"); e == nil {
			return d.inUse(b.Name) // another process created it first
		}
	}
	if err != nil {
		return err
	}
	if err = d.await(number); err == nil {
		err = d.accepted(b.Name)
	}
	if err != nil {
		err = errors.Join(err, d.removeBridge(b.Name))
	}
	return err
}

func (d *db) bridgeOps(b *kernel.OVSBridge, network string) []ovsdb.Operation {
	datapath := b.Datapath
	if datapath == "" && !netlink.HasFamily("ovs_datapath") {
		datapath = userSpace
	}
	return []ovsdb.Operation{
		insert("Interface", "iface", ovsdb.Row{"name": b.Name, "type": "internal"}),
		insert("Port", "port", ovsdb.Row{"name": b.Name, "interfaces": ovsdb.UUID{GoUUID: "iface"}}),
		insert("Bridge", "bridge", ovsdb.Row{"name": b.Name, "ports": ovsdb.UUID{GoUUID: "port"}, "datapath_type": datapath,
			"other_config": ovsMap(map[string]string{"hwaddr": b.MAC}), "external_ids": ovsMap(map[string]string{idNetwork: network})}),
		mutate("Open_vSwitch", is("_uuid", d.root), "bridges", ovsdb.MutateOperationInsert, ovsdb.UUID{GoUUID: "bridge"}),
	}
}

func (d *db) removeBridge(name string) error {
	b, err := d.named("Bridge", name, "_uuid")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = d.do(mutate("Open_vSwitch", is("_uuid", d.root), "bridges", ovsdb.MutateOperationDelete, b.uuid()))
	return err
}

// diffBridge compares what the network needs of a bridge. Whoever created the bridge decides its address and datapath.
func (d *db) diffBridge(b *kernel.OVSBridge) ([]string, error) {
	have, err := d.named("Bridge", b.Name, "datapath_type")
	if err != nil {
		return nil, err
	}
	var out []string
	if b.Datapath != "" && have.text("datapath_type") != b.Datapath && (have.text("datapath_type") != "" || b.Datapath != "system") {
		out = append(out, fmt.Sprintf("datapath_type is %s, want %s", have.text("datapath_type"), b.Datapath))
	}
	problem, err := d.settled(b.Name)
	if problem != "" {
		out = append(out, problem)
	}
	return out, err
}
