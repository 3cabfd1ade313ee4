package ipam

import (
	"context"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/skel"
)

// ValidateHostLocal rejects a configuration that ADD would reject.
func ValidateHostLocal(data []byte) error {
	_, err := parseHostLocal(data, "")
	return err
}

// PlanHostLocal returns what ADD would return now; it allocates nothing.
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

// ValidateStatic rejects a configuration that ADD would reject.
func ValidateStatic(data []byte) error {
	_, err := parseStatic(data, "")
	return err
}

// HostLocalRanges returns the directory and the ranges of a configuration.
func HostLocalRanges(data []byte) (dataDir string, sets []ipam.RangeSet, err error) {
	c, err := parseHostLocal(data, "")
	if err != nil {
		return "", nil, err
	}
	return c.dataDir, c.sets, nil
}
