package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/leangob"
	"github.com/fairlead/fairlead/skel"
)

// DHCP returns the plugin dhcp: addresses that the network's own servers give.
// What keeps the leases is a daemon, package dhcpd.
func DHCP() skel.Plugin {
	return skel.Plugin{
		Name:     "dhcp",
		About:    "gets addresses from the network's DHCP servers and routers, by a daemon that keeps the leases",
		AnyNetns: true, // the daemon says what is wrong with it
		Funcs: skel.CNIFuncs{
			Add:    dhcpAdd,
			Check:  dhcpCheck,
			Del:    dhcpDel,
			GC:     dhcpGC,
			Status: dhcpStatus,
		},
	}
}

// ValidateDHCP refuses a configuration that ADD would refuse.
func ValidateDHCP(data []byte) error {
	_, err := ParseDHCP(data, "")
	return err
}

func dhcpAdd(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	c, err := ParseDHCP(args.StdinData, args.Args)
	if err != nil {
		return nil, err
	}
	body, err := callDHCP(ctx, c.Socket, "Allocate", args)
	if err != nil {
		return nil, passing(err)
	}
	r, err := dhcpResult(body)
	if err != nil {
		return nil, fmt.Errorf("the DHCP daemon at %s answered: %w", c.Socket, err)
	}
	var addrs []netip.Addr
	for _, ip := range r.IPs {
		addrs = append(addrs, ip.Address.Addr())
	}
	r.CNIVersion = c.Version
	return r, checkFamilies(c.Version, addrs)
}

// passing marks the absence of the daemon as a condition that may pass.
func passing(err error) error {
	if u, ok := errors.AsType[*unreachable](err); ok {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", u)
	}
	return err
}

// dhcpCheck asks whether the lease is held. The reference's daemon answers by
// giving again what it gave.
func dhcpCheck(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseDHCP(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	_, err = callDHCP(ctx, c.Socket, "Check", args)
	if errors.Is(err, errNoMethod) {
		_, err = callDHCP(ctx, c.Socket, "Allocate", args)
	}
	return passing(err)
}

// dhcpDel has the lease released. Without a daemon nobody holds it: one that
// is started later finds the interface gone, and forgets.
func dhcpDel(ctx context.Context, args *skel.CmdArgs) error {
	_, err := callDHCP(ctx, socketOf(args.StdinData), "Release", args)
	if _, absent := errors.AsType[*unreachable](err); absent {
		return nil
	}
	return err
}

// socketOf is the daemon's socket by whatever of the configuration can be read.
func socketOf(data []byte) string {
	c, err := decode[struct {
		DaemonSocketPath string `json:"daemonSocketPath"`
	}](data)
	if err != nil || c.IPAM.DaemonSocketPath == "" {
		return DefaultDHCPSocket
	}
	return c.IPAM.DaemonSocketPath
}

func dhcpGC(ctx context.Context, args *skel.CmdArgs) error {
	_, err := callDHCP(ctx, socketOf(args.StdinData), "GC", args, leangob.Field{Name: "Began", Value: int64(gcBegan(ctx))})
	if _, absent := errors.AsType[*unreachable](err); absent || errors.Is(err, errNoMethod) {
		return nil
	}
	return err
}

func dhcpStatus(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseDHCP(args.StdinData, "")
	if err != nil {
		return err
	}
	_, err = callDHCP(ctx, c.Socket, "Status", args)
	u, absent := errors.AsType[*unreachable](err)
	switch {
	case err == nil || errors.Is(err, errNoMethod):
		return nil
	case absent:
		return cni.Errorf(cni.CodePluginNotAvailable, "%w", u)
	}
	return cni.Errorf(cni.CodeLimitedConnectivity, "%w", err)
}
