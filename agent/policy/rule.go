package policy

import "net/netip"

// direction is a direction as a pod sees it.
type direction int

const (
	ingress direction = iota
	egress
)

func (d direction) String() string {
	if d == ingress {
		return "ingress"
	}
	return "egress"
}

// peers is the field of a rule with the other ends.
func (d direction) peers() string {
	if d == ingress {
		return "from"
	}
	return "to"
}

// tier groups policies by precedence, in this order.
type tier int

const (
	adminTier    tier = iota
	networkTier       // NetworkPolicies
	baselineTier      // for pods that no NetworkPolicy selects
	tiers
)

// action says whether a rule accepts, denies or passes a matching connection.
type action string

const (
	accept action = "Accept"
	deny   action = "Deny"
	pass   action = "Pass" // the rest of the tier does not apply
)

// rules is a policy of either kind.
type rules struct {
	id       string // "NetworkPolicy shop/web", "ClusterNetworkPolicy deny-all"
	tier     tier
	priority int32 // in the tier; the lower one is first
	subject  podSelector
	noPods   bool // it selects none
	rules    [2][]rule
	applies  [2]bool // to a direction; a NetworkPolicy allows nothing there but what its rules say
	problems []error // parts that are invalid and have no effect, except as their rule says
}

// rule matches a connection if one of its peers and one of its ports match.
type rule struct {
	name   string // "ingress[0]", or with the name that the user gave it
	action action

	anyPeer bool
	pods    []podSelector
	nodes   []labelSelector
	blocks  []addrRange

	anyPort bool
	ports   []portRange
	named   []namedPort
}

// namedPort is a port by its name. Each destination pod has its own number for it.
type namedPort struct {
	protocol string // "tcp", "udp" or "sctp"; "": all of them
	name     string
}

// block is an address range with exceptions.
type block struct {
	cidr   netip.Prefix
	except []netip.Prefix
}

func (b block) ranges() []addrRange {
	var except []addrRange
	for _, p := range b.except {
		except = append(except, rangeOf(p))
	}
	return rangeOf(b.cidr).subtract(except)
}
