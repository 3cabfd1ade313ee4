package ovs

import (
	"maps"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/kernel"
)

// External IDs that identify the owner of a port and of an interface. A tunnel, and a bridge that Fairlead created, have
// only the network's.
const (
	idNetwork   = "fairlead-network"
	idContainer = "fairlead-container"
	idInterface = "fairlead-interface"
)

// rows are a bridge port and its interface, without names and references.
type rows struct {
	port, iface ovsdb.Row
	absent      map[string]string // options that the interface must not have, except with this value, the default
}

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
	return rows{port: port, iface: iface}
}

func tunnelRows(t *kernel.OVSTunnel) rows {
	options := map[string]string{"key": strconv.Itoa(t.VNI), "remote_ip": t.Remote}
	absent := map[string]string{}
	if t.Local != "" {
		options["local_ip"] = t.Local
	} else {
		absent["local_ip"] = ""
	}
	if t.Port > 0 && t.Port != defaultPort {
		options["dst_port"] = strconv.Itoa(t.Port)
	} else {
		absent["dst_port"] = strconv.Itoa(defaultPort)
	}
	port := vlanRow(t.VLAN)
	port["protected"] = t.Protected
	port["external_ids"] = ovsMap(map[string]string{idNetwork: t.Network})
	return rows{port, ovsdb.Row{"type": "vxlan", "options": ovsMap(options)}, absent}
}

// vlanRow sets every column, so that a comparison also finds columns that should be empty.
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

// owner returns the owner of a port. It is empty for a port of other software and for a tunnel.
func owner(r row) kernel.Owner {
	id := r.strings("external_ids")
	return kernel.Owner{Network: id[idNetwork], ContainerID: id[idContainer], IfName: id[idInterface]}
}
