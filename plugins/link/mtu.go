package link

import (
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugin"
)

// mtuOf returns the MTU of a container's link in bytes: the configured one or, on a cluster network, what its tunnels
// leave. 0 means the kernel's default.
func mtuOf(a *plugin.Attachment, c *plugin.Conf, asked int) int {
	if asked != 0 || c.IPAM.Type != "fairlead-ipam" {
		return asked
	}
	var conf struct {
		IPAM struct {
			Network string `json:"network"`
		} `json:"ipam"`
	}
	if cni.Decode(c.Raw, &conf) != nil || conf.IPAM.Network == "" {
		conf.IPAM.Network = cluster.DefaultNetwork
	}
	n, err := local.Open("", "").ReadWith(a.Facts.ReadFile, conf.IPAM.Network)
	if err != nil {
		return 0 // IPAM reports the error
	}
	return n.MTU
}
