package cni

import "net/netip"

// Result is the result of an ADD, in one shape for all versions; package wire has the JSON forms.
type Result struct {
	CNIVersion string // the version it was decoded from or will be encoded in
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
	DNS        DNS
}

// Interface is one interface that the attachment created or uses.
type Interface struct {
	Name       string
	Mac        string
	MTU        int    // bytes; 0: unset; since 1.1.0
	Sandbox    string // path of the network namespace; "" means the host
	SocketPath string // since 1.1.0
	PciID      string // since 1.1.0
}

// IP is one address of the attachment.
type IP struct {
	Interface *int         // index into Interfaces; nil: unset
	Address   netip.Prefix // address and prefix length, with host bits
	Gateway   netip.Addr   // zero: none
}

// Route is a route of the container.
type Route struct {
	Dst      netip.Prefix
	GW       netip.Addr // zero: the address's gateway, or none
	MTU      int        // bytes; 0: unset; since 1.1.0
	AdvMSS   int        // bytes; 0: unset; since 1.1.0
	Priority int        // metric; 0: unset; since 1.1.0
	Table    *int       // nil: the main table; since 1.1.0
	Scope    *int       // as in rtnetlink(7): 0 global, 253 link, 254 host; nil: unset; since 1.1.0
}

// DNS has the container's DNS settings.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether nothing is set.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}

// InterfaceOf returns the interface of an address. It is nil if the result does not say which, also by an index outside the
// list: old versions of the reference library write -1.
func (r *Result) InterfaceOf(ip IP) *Interface {
	if i := ip.Interface; i != nil && *i >= 0 && *i < len(r.Interfaces) {
		return &r.Interfaces[*i]
	}
	return nil
}

// Clone returns a deep copy.
func (r *Result) Clone() *Result {
	c := *r
	c.Interfaces = append([]Interface(nil), r.Interfaces...)
	c.IPs = append([]IP(nil), r.IPs...)
	for i, ip := range c.IPs {
		c.IPs[i].Interface = clonePtr(ip.Interface)
	}
	c.Routes = append([]Route(nil), r.Routes...)
	for i, rt := range c.Routes {
		c.Routes[i].Table, c.Routes[i].Scope = clonePtr(rt.Table), clonePtr(rt.Scope)
	}
	c.DNS.Nameservers = append([]string(nil), r.DNS.Nameservers...)
	c.DNS.Search = append([]string(nil), r.DNS.Search...)
	c.DNS.Options = append([]string(nil), r.DNS.Options...)
	return &c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
