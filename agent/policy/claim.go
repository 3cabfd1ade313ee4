package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Claim says that an attachment on this node has addresses, and for which endpoint. The node knows it before the API
// knows the endpoint's addresses. An address that is claimed for an unknown endpoint is closed, unless the claim is
// direct.
type Claim struct {
	Namespace, Name string
	UID             string // of the pod; "": any
	Addresses       []netip.Addr
	Bridged         []netip.Prefix // addresses on a bridge
	Direct          bool           // the node does not forward the attachment's packets, see Endpoint.direct
	Since           time.Duration  // since the node's boot; of several claims of an address, the newest counts
}

func (c *Claim) key() string { return EndpointKey(c.Namespace, c.Name) }

// isFor reports whether a claim belongs to an endpoint, and not to one of the same name before or after it.
func (c *Claim) isFor(e *Endpoint) bool {
	return e != nil && c.key() == EndpointKey(e.Namespace, e.Name) && (c.UID == "" || e.UID == "" || c.UID == e.UID)
}

// SetClaim adds the claim of an attachment, or changes it.
func (c *Compiler) SetClaim(id string, now *Claim) {
	old := c.claims[id]
	if old != nil && reflect.DeepEqual(old, now) {
		return
	}
	c.claims[id] = now
	c.claimChanged(id, old, now)
}

// DeleteClaim removes the claim of an attachment, if there is one.
func (c *Compiler) DeleteClaim(id string) {
	if old := c.claims[id]; old != nil {
		delete(c.claims, id)
		c.claimChanged(id, old, nil)
	}
}

// Claims returns the IDs of the attachments that have claims.
func (c *Compiler) Claims() (ids []string) {
	for id := range c.claims {
		ids = append(ids, id)
	}
	return ids
}

// Waiting returns what must be known before the policies of a claim's endpoint can be in force, or "".
func (c *Compiler) Waiting(id string) string {
	claim := c.claims[id]
	if claim == nil {
		return "the container's addresses"
	}
	e := c.given[claim.key()]
	switch {
	case !claim.isFor(e):
		return "pod " + claim.key() + " from the Kubernetes API"
	case c.local[claim.key()].closed:
		return "namespace " + claim.Namespace + " from the Kubernetes API"
	}
	return ""
}

// claimAnnounced claims the addresses that only annotations have for this node's endpoints.
func (c *Compiler) claimAnnounced() {
	for key, e := range maps.Clone(c.given) {
		claim := &Claim{Namespace: e.Namespace, Name: e.Name, UID: e.UID}
		for _, a := range e.Announced[""] {
			here := c.network == "" || slices.Contains(e.Isolated[c.network], a)
			if here && c.owner(a) == key && !c.isNode(a) {
				claim.Addresses = append(claim.Addresses, a)
			}
		}
		if len(claim.Addresses) > 0 {
			c.SetClaim("annotation of "+key, claim)
		}
	}
}

// claimChanged updates the endpoints that have or had a claim's addresses.
func (c *Compiler) claimChanged(id string, old, now *Claim) {
	var addrs []netip.Addr
	keys := map[string]bool{}
	for _, claim := range []*Claim{old, now} {
		if claim == nil {
			continue
		}
		keys[claim.key()] = true
		addrs = append(addrs, claim.Addresses...)
		for _, a := range claim.Addresses {
			exclude(c.claimed, a, id)
		}
	}
	if now != nil && !now.Direct {
		for _, a := range now.Addresses {
			include(c.claimed, a, id)
		}
	}
	for key := range keys {
		if e := c.given[key]; e != nil {
			c.replaceEndpoint(key, e)
		}
	}
	for key := range c.endpoints.sharing(addrs) {
		c.endpointChanged(key)
	}
	for _, a := range addrs {
		c.setAddr(a)
	}
	c.usedByPods(addrs)
	c.updateMulticast()
}

// withClaims returns an endpoint with the addresses that are claimed for it.
func (c *Compiler) withClaims(e *Endpoint) *Endpoint {
	if e == nil || e.Node != c.node {
		return e
	}
	merged := *e
	merged.Addresses, merged.direct = slices.Clone(e.Addresses), slices.Clone(e.direct)
	for _, claim := range c.claims {
		if !claim.isFor(e) {
			continue
		}
		merged.Addresses = append(merged.Addresses, claim.Addresses...)
		for _, a := range claim.Addresses {
			reported := slices.Contains(e.Addresses, a) && !slices.Contains(e.Announced[""], a)
			if claim.Direct && !reported {
				merged.direct = append(merged.direct, a)
			}
		}
	}
	slices.SortFunc(merged.Addresses, netip.Addr.Compare)
	merged.Addresses = slices.Compact(merged.Addresses)
	return &merged
}

// claimOf returns the newest claim of an address, or nil. Only attachments whose packets the node forwards count.
func (c *Compiler) claimOf(a netip.Addr) *Claim {
	last := ""
	for id := range c.claimed[a] {
		if last == "" || cmp.Or(cmp.Compare(c.claims[id].Since, c.claims[last].Since), strings.Compare(id, last)) > 0 {
			last = id
		}
	}
	return c.claims[last]
}

// owner returns the endpoint that has an address, or "". On this node, claims decide. Elsewhere it is the newest
// endpoint that has the address in the API: an endpoint that is ending may have it, too.
func (c *Compiler) owner(a netip.Addr) (key string) {
	claim := c.claimOf(a)
	if claim == nil {
		return c.endpoints.owner(a)
	}
	if e := c.given[claim.key()]; claim.isFor(e) {
		return claim.key()
	}
	return ""
}
