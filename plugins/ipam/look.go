package ipam

import (
	"context"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/skel"
)

// ValidateHostLocal refuses a configuration that ADD would refuse.
func ValidateHostLocal(data []byte) error {
	_, err := parseHostLocal(data, "")
	return err
}

// PlanHostLocal is what ADD would give now; nothing is reserved.
func PlanHostLocal(_ context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	c, err := parseHostLocal(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	ips, err := ipam.Peek(c.dataDir, c.network, ownerOf(args), c.sets, c.requested)
	if err != nil {
		return nil, err
	}
	r := &cni.Result{CNIVersion: c.version, Routes: c.routes, DNS: c.dns}
	for _, ip := range ips {
		r.IPs = append(r.IPs, cni.IP{Address: ip.Address, Gateway: ip.Gateway})
	}
	return r, nil
}

// ValidateStatic refuses a configuration that ADD would refuse.
func ValidateStatic(data []byte) error {
	_, err := parseStatic(data, "")
	return err
}

// HostLocalRanges are the directory and the ranges of a configuration.
func HostLocalRanges(data []byte) (dataDir string, sets []ipam.RangeSet, err error) {
	c, err := parseHostLocal(data, "")
	if err != nil {
		return "", nil, err
	}
	return c.dataDir, c.sets, nil
}
