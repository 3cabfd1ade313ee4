package dhcpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// service has the methods that callers may call. The reference daemon has Allocate and Release. Fairlead adds the
// others.
type service struct {
	d   *Daemon
	ctx context.Context // the caller's context
}

// CmdArgs is the argument of every method. Its field names are part of the wire format.
type CmdArgs struct {
	ContainerID, Netns, IfName, Args, Path string
	StdinData                              []byte
	Began                                  int64 // for GC: its start, in nanoseconds since boot
}

func (a *CmdArgs) request() Request {
	return Request{a.ContainerID, a.Netns, a.IfName, a.Args, a.StdinData}
}

// Nothing is the empty reply.
type Nothing struct{}

// Allocate gets a lease for an attachment.
func (s *service) Allocate(a *CmdArgs, out *Result) error {
	r, err := s.d.Allocate(s.ctx, a.request())
	if err == nil {
		*out = encode(r)
	}
	return err
}

// Release releases the lease of an attachment. A missing lease is not an error.
func (s *service) Release(a *CmdArgs, _ *Nothing) error {
	l, err := s.d.find(a.request())
	if err != nil || l == nil {
		return err
	}
	return s.d.end(l)
}

// Check returns an error unless the attachment's lease is valid.
func (s *service) Check(a *CmdArgs, _ *Nothing) error {
	l, err := s.d.find(a.request())
	if err != nil {
		return err
	}
	if l == nil || !l.isReady() {
		return fmt.Errorf("there is no lease for container %s, interface %s, but ADD got one: run DEL and ADD again", a.ContainerID, a.IfName)
	}
	if _, why := l.missing(); why != "" {
		return errors.New(why)
	}
	return nil
}

// Status returns an error if a lease of the network is lost.
func (s *service) Status(a *CmdArgs, _ *Nothing) error {
	network, err := networkOf(a.StdinData)
	if err != nil {
		return err
	}
	var lost []string
	for _, l := range s.d.all(network) {
		if _, why := l.missing(); why != "" {
			lost = append(lost, fmt.Sprintf("container %s, interface %s: %s", l.saved.ContainerID, l.saved.IfName, why))
		}
	}
	switch len(lost) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("a lease is lost: %s", lost[0])
	}
	return fmt.Errorf("%d leases are lost; the first is of %s", len(lost), lost[0])
}

// GC releases the leases of the network without a valid attachment, except those acquired since the collection began.
func (s *service) GC(a *CmdArgs, _ *Nothing) error {
	var c cni.PluginConf
	if err := cni.Decode(a.StdinData, &c); err != nil {
		return err
	}
	var errs []error
	for _, l := range s.d.all(c.Name) {
		valid := slices.Contains(c.ValidAttachments, cni.Attachment{ContainerID: l.saved.ContainerID, IfName: l.saved.IfName})
		if !valid && l.isReady() && int64(l.saved.Created) < a.Began {
			errs = append(errs, s.d.end(l))
		}
	}
	return errors.Join(errs...)
}

// List returns the state of every lease as JSON, see State.
func (s *service) List(_ *CmdArgs, out *[]byte) (err error) {
	*out, err = json.Marshal(s.d.States())
	return err
}

// all returns the leases of a network in order; "" means all networks.
func (d *Daemon) all(network string) []*lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*lease
	for _, l := range d.leases {
		if network == "" || l.saved.Network == network {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *lease) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Result is a result in the wire format: specification 1.0.0 and later, with the names and types of the reference
// library.
type Result struct {
	CNIVersion string
	IPs        []*IPConfig
	Routes     []*Route
	DNS        DNS
}

// IPConfig is one address.
type IPConfig struct {
	Address net.IPNet
	Gateway net.IP
}

// Route is one route.
type Route struct {
	Dst                   net.IPNet
	GW                    net.IP
	MTU, AdvMSS, Priority int
	Table, Scope          *int
}

// DNS is the name service.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

func encode(r *cni.Result) Result {
	out := Result{CNIVersion: cni.Current, DNS: DNS(r.DNS)}
	for _, ip := range r.IPs {
		out.IPs = append(out.IPs, &IPConfig{ipNet(ip.Address), ip.Gateway.AsSlice()})
	}
	for _, rt := range r.Routes {
		out.Routes = append(out.Routes, &Route{ipNet(rt.Dst), rt.GW.AsSlice(), rt.MTU, rt.AdvMSS, rt.Priority, rt.Table, rt.Scope})
	}
	return out
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
