package chain

import (
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// VRF returns the plugin that puts a container's interface into a VRF of the container.
func VRF() plugin.Plugin {
	return plugin.Plugin{
		Name: "vrf", About: "puts an interface into a VRF of its container, with its addresses and routes", Chained: true, Exclusive: true,
		New: func() plugin.Config { return &vrf{} },
	}
}

type vrf struct {
	plugin.Conf
	Name  string `json:"vrfname"`
	Table int    `json:"table"`
}

// defaultTable, main (254) and kernel.LocalTable are the tables that the kernel's own rules look up for every packet.
const defaultTable = 253

func (c *vrf) Validate(*plugin.Attachment) error {
	if err := cni.ValidateInterfaceName(c.Name); err != nil {
		return cni.Invalid(c.Raw, "vrfname", err.Error())
	}
	if c.Table < 0 || c.Table > maxTable || c.Table >= defaultTable && c.Table <= kernel.LocalTable {
		return cni.Invalid(c.Raw, "table", fmt.Sprintf("want 0 (a free one) to %d, except the kernel's tables default, main and local (%d to %d)",
			maxTable, defaultTable, kernel.LocalTable))
	}
	return nil
}

func (c *vrf) Addressed(a *plugin.Attachment, _ *cni.Result) (kernel.Objects, error) {
	links, err := a.Facts.Links(kernel.Container)
	if err != nil {
		return nil, err
	}
	table, err := c.table(a, links)
	if err != nil {
		return nil, err
	}
	return kernel.Objects{
		&kernel.VRF{Name: c.Name, Table: table},
		&kernel.VRFMember{Link: a.IfName, VRF: c.Name},
	}, nil
}

// Find returns what DEL without a record looks for.
func (c *vrf) Find(a *plugin.Attachment) (kernel.Objects, error) {
	l, err := a.Facts.Link(kernel.Container, c.Name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return kernel.Objects{
		&kernel.VRF{Name: c.Name, Table: l.VRFTable()},
		&kernel.VRFMember{Link: a.IfName, VRF: c.Name},
	}, nil
}

// table returns the table of the existing VRF, or the configured one, or the first without a VRF and routes. Several
// VRFs may have the configured table.
func (c *vrf) table(a *plugin.Attachment, links []*kernel.LinkInfo) (int, error) {
	used := map[int]bool{}
	for _, l := range links {
		switch {
		case l.Name == c.Name && l.Kind != "vrf":
			return 0, cni.Invalid(c.Raw, "vrfname", c.Name+" exists in the container and is not a vrf")
		case l.Name == c.Name && c.Table != 0 && l.VRFTable() != c.Table:
			return 0, cni.Invalid(c.Raw, "table", fmt.Sprintf("vrf %s exists with table %d", c.Name, l.VRFTable()))
		case l.Name == c.Name:
			return l.VRFTable(), nil
		case l.Kind == "vrf":
			used[l.VRFTable()] = true
		}
	}
	if c.Table != 0 {
		return c.Table, nil
	}
	for _, family := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := a.Facts.Routes(kernel.Container, family, 0)
		if err != nil {
			return 0, err
		}
		for _, r := range routes {
			used[r.Table] = true
		}
	}
	table := 1
	for used[table] {
		table++
	}
	return table, nil
}
