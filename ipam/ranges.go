package ipam

import (
	"fmt"
	"net/netip"
)

// Range is a part of a subnet from which addresses are allocated. Call Complete first: it fills unset fields and checks
// the others.
type Range struct {
	Subnet  netip.Prefix
	Start   netip.Addr // first address to allocate; by default the subnet's second
	End     netip.Addr // last address to allocate; by default the subnet's last, without IPv4's broadcast
	Gateway netip.Addr // by default the subnet's second; never allocated
}

// RangeSet is the set of ranges that one address of an attachment comes from. All are of one family and are used in
// order.
type RangeSet []Range

// FieldError is an invalid value of a range.
type FieldError struct {
	Set, Range int    // indices from 0; Range is -1 for a whole set
	Field      string // "subnet", "rangeStart", "rangeEnd", "gateway"; "": the whole range
	Problem    string // what is wrong, and what is allowed
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("range set %d, range %d: %s: %s", e.Set, e.Range, e.Field, e.Problem)
}

func fieldErrorf(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Complete returns the range with all fields set, or a *FieldError.
func (r Range) Complete() (Range, error) {
	if err := checkSubnet(r.Subnet); err != nil {
		return Range{}, err
	}
	first := r.Subnet.Addr().Next()
	for _, f := range []struct {
		key  string
		addr *netip.Addr
		def  netip.Addr
	}{{"gateway", &r.Gateway, first}, {"rangeStart", &r.Start, first}, {"rangeEnd", &r.End, lastAssignable(r.Subnet)}} {
		*f.addr = f.addr.Unmap()
		if !f.addr.IsValid() {
			*f.addr = f.def
		}
		check := checkInside
		if f.key == "gateway" {
			check = checkGateway
		}
		if err := check(f.key, *f.addr, r.Subnet); err != nil {
			return Range{}, err
		}
	}
	if r.End.Less(r.Start) {
		return Range{}, fieldErrorf("rangeStart", "the range starts after its end %s: want a start at or before it", r.End)
	}
	return r, nil
}

func checkSubnet(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fieldErrorf("subnet", `missing: want a network like "10.1.0.0/16" or "fd00:1::/64"`)
	case p.Addr().Is4In6():
		return fieldErrorf("subnet", "an IPv4 network in IPv6 notation: write it in IPv4 notation, like \"10.1.0.0/16\"")
	case p.Bits() > p.Addr().BitLen()-2:
		return fieldErrorf("subnet", "the network %s is too small to allocate from: want a prefix length of at most %d", p, p.Addr().BitLen()-2)
	case p != p.Masked():
		return fieldErrorf("subnet", "host bits are set: the network of this prefix length is %s", p.Masked())
	}
	return nil
}

// checkInside checks that an address is in its subnet.
func checkInside(key string, a netip.Addr, subnet netip.Prefix) error {
	switch {
	case a.Zone() != "":
		return fieldErrorf(key, "an address with a zone: want a plain address in %s", subnet)
	case !subnet.Contains(a):
		return fieldErrorf(key, "%s is not in the subnet %s: want an address from %s to %s",
			a, subnet, subnet.Addr().Next(), lastAssignable(subnet))
	}
	return nil
}

// checkGateway checks a gateway. It may be outside the subnet: ptp reaches it by a route of its own.
func checkGateway(key string, a netip.Addr, subnet netip.Prefix) error {
	switch {
	case a.Zone() != "":
		return fieldErrorf(key, "an address with a zone: want a plain address")
	case a.IsUnspecified() || a.Is4() != subnet.Addr().Is4():
		return fieldErrorf(key, "want an address of a host, of the same family as the subnet %s", subnet)
	}
	return nil
}

// lastAssignable returns the subnet's last address that a container can have: IPv6 has no broadcast.
func lastAssignable(subnet netip.Prefix) netip.Addr {
	last := LastOf(subnet)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.Start.BitLen() && !a.Less(r.Start) && !r.End.Less(a)
}

func (r Range) String() string { return r.Start.String() + "-" + r.End.String() }

// Find returns the set's range that contains an address.
func (s RangeSet) Find(a netip.Addr) (Range, bool) {
	for _, r := range s {
		if r.Contains(a) {
			return r, true
		}
	}
	return Range{}, false
}

func (s RangeSet) String() string {
	text := ""
	for i, r := range s {
		if i > 0 {
			text += ","
		}
		text += r.String()
	}
	return text
}
