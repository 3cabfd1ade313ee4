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

// DHCP returns the plugin dhcp, which gets addresses from the network's DHCP servers. A daemon, package dhcpd, keeps
// the leases.
func DHCP() skel.Plugin {
	return skel.Plugin{
		Name:     "dhcp",
		About:    "gets addresses from DHCP servers and routers; a daemon keeps the leases",
		AnyNetns: true, // the daemon reports problems with the namespace
		Funcs: skel.CNIFuncs{
			Add:    dhcpAdd,
			Check:  dhcpCheck,
			Del:    dhcpDel,
			GC:     dhcpGC,
			Status: dhcpStatus,
		},
	}
}

// ValidateDHCP rejects a configuration that ADD would reject.
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
		return nil, temporary(err)
	}
	r, err := dhcpResult(body)
	if err != nil {
		err = fmt.Errorf("the DHCP daemon at %s answered: %w", c.Socket, err)
	} else {
		var addrs []netip.Addr
		for _, ip := range r.IPs {
			addrs = append(addrs, ip.Address.Addr())
		}
		err = checkFamilies(c.Version, addrs)
	}
	if err != nil { // nobody else releases the lease of an ADD that failed
		return nil, errors.Join(err, dhcpDel(context.WithoutCancel(ctx), args))
	}
	r.CNIVersion = c.Version
	return r, nil
}

// temporary marks an unreachable daemon as a temporary condition.
func temporary(err error) error {
	if u, ok := errors.AsType[*unreachable](err); ok {
		return cni.Errorf(cni.CodeTryAgainLater, "%w", u)
	}
	return err
}

// dhcpCheck asks whether the lease is held. The reference daemon answers by returning the lease again.
func dhcpCheck(ctx context.Context, args *skel.CmdArgs) error {
	c, err := ParseDHCP(args.StdinData, args.Args)
	if err != nil {
		return err
	}
	_, err = callDHCP(ctx, c.Socket, "Check", args)
	if errors.Is(err, errNoMethod) {
		_, err = callDHCP(ctx, c.Socket, "Allocate", args)
	}
	return temporary(err)
}

// dhcpDel releases the lease. Without a daemon there is no lease to release: a daemon started later finds that the
// interface is gone and forgets the lease.
func dhcpDel(ctx context.Context, args *skel.CmdArgs) error {
	_, err := callDHCP(ctx, socketOf(args.StdinData), "Release", args)
	if _, absent := errors.AsType[*unreachable](err); absent {
		return nil
	}
	return err
}

// socketOf returns the daemon's socket from any readable part of the configuration.
func socketOf(data []byte) string {
	_, keys, err := identity[struct {
		DaemonSocketPath string `json:"daemonSocketPath"`
	}](data)
	if err != nil || keys.DaemonSocketPath == "" {
		return DefaultDHCPSocket
	}
	return keys.DaemonSocketPath
}

func dhcpGC(ctx context.Context, args *skel.CmdArgs) error {
	_, err := callDHCP(ctx, socketOf(args.StdinData), "GC", args, leangob.Field{Name: "Began", Value: int64(gcStarted(ctx))})
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
