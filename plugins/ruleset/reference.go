package ruleset

import (
	"encoding/hex"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/leansha512"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// The rules and links that the reference plugins (v1.9.1) leave on a host for an attachment. Their names derive from
// the attachment, so DEL finds them after a switch to Fairlead.

// ReferenceID returns the hash in the names of the reference plugins' chains and links.
func ReferenceID(a *plugin.Attachment) string { return digest(a.Network + a.ContainerID) }

func digest(s string) string {
	sum := leansha512.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// ReferenceMasquerade returns the rules of ipMasq in both backends, because nothing records which one the reference
// plugin used.
func ReferenceMasquerade(a *plugin.Attachment) (list kernel.Objects) {
	for _, family := range []string{"ip", "ip6"} {
		list = append(list, &kernel.ReferenceRules{Family: family, Table: "nat", Chain: "POSTROUTING", JumpTarget: "CNI-" + ReferenceID(a)[:24]})
	}
	comment := digest(a.Network)[:16] + "-" + digest(a.IfName + ":" + a.ContainerID)[:16]
	return append(list, &kernel.ReferenceRules{Family: "inet", Table: "cni_plugins_masquerade", Chain: "masq_checks", Comment: comment})
}

// ReferenceSpoofCheck returns the rules of macspoofchk.
func ReferenceSpoofCheck(a *plugin.Attachment) kernel.Objects {
	chain := "cni-br-iface-" + a.ContainerID + "-" + a.IfName
	return kernel.Objects{
		&kernel.ReferenceRules{Family: "bridge", Table: "nat", Chain: "PREROUTING", JumpTarget: chain},
		&kernel.ReferenceRules{Family: "bridge", Table: "nat", Chain: chain, JumpTarget: chain + "-mac"},
	}
}

// ReferencePorts returns the rules of portmap.
func ReferencePorts(a *plugin.Attachment) (list kernel.Objects) {
	for _, family := range []string{"ip", "ip6"} {
		list = append(list, &kernel.ReferenceRules{Family: family, Table: "nat", Chain: "CNI-HOSTPORT-DNAT", JumpTarget: "CNI-DN-" + ReferenceID(a)[:21]})
		for _, chain := range []string{"hostports", "hostip_hostports", "masquerading"} {
			list = append(list, &kernel.ReferenceRules{Family: family, Table: "cni_hostport", Chain: chain, Comment: a.ContainerID})
		}
	}
	return list
}

// ReferenceForward returns the rules of firewall for an attachment's addresses.
func ReferenceForward(ips []cni.IP) (list kernel.Objects) {
	for _, ip := range ips {
		addr := ip.Address.Addr()
		list = append(list, &kernel.ReferenceRules{Family: FamilyOf(addr.Is4()).IP, Table: "filter", Chain: "CNI-FORWARD", Addr: addr.String()})
	}
	return list
}

// ReferenceLink returns the name of bandwidth's link.
func ReferenceLink(a *plugin.Attachment) string { return "bwp" + ReferenceID(a)[:12] }
