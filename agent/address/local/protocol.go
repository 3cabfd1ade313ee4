package local

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// A request and its answer are one line of JSON each; who has taken what the answer
// gives says so by one byte more. The version grows when an old agent would
// misunderstand a request.
const (
	ProtocolVersion = 1
	Taken           = '\n'
	MaxLine         = 1 << 20 // bytes
)

// The operations. An agent may have more.
const (
	OpStatus  = "status"  // StatusArgs -> StatusResult
	OpBlock   = "block"   // BlockArgs -> nothing: the network's file has one more
	OpClaim   = "claim"   // ClaimArgs -> ClaimResult
	OpForesee = "foresee" // ClaimArgs -> ClaimResult: what a claim would get, which takes nothing
	OpReport  = "report"  // ReportArgs -> nothing: an endpoint
	OpNetwork = "network" // NetworkArgs -> nothing: the isolated network's namespace is here
	OpAgent   = "agent"   // nothing -> the agent's State
	OpStore   = "store"   // nothing -> of the agent's configuration, what leads to its store, and its node
)

// Request is what a plugin asks of the agent.
type Request struct {
	Version int             `json:"v"`
	Op      string          `json:"op"`
	Args    json.RawMessage `json:"args,omitempty"`
}

// Answer is what the agent says.
type Answer struct {
	Version int             `json:"v"`
	Error   *Error          `json:"error,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

// Error is a refusal, with the code that the plugin is to end with.
type Error struct {
	Code uint   `json:"code"`
	Msg  string `json:"msg"`
}

func (e *Error) Error() string { return e.Msg }

// BlockArgs ask for one more block of each subnet named.
type BlockArgs struct {
	Network string         `json:"network"`
	Subnets []netip.Prefix `json:"subnets,omitempty"` // none: only that the network's file be there
}

// NetworkArgs ask for an isolated network on this host.
type NetworkArgs struct {
	Network string `json:"network"`
}

// NetnsPath is the namespace of an isolated network, the same on each host; NetnsDir
// and NetnsPrefix are what all such paths begin with.
func NetnsPath(network string) string { return NetnsDir + "/" + NetnsPrefix + network }

// Where ip(8) looks for namespaces, and how ours are called there.
const (
	NetnsDir    = "/run/netns"
	NetnsPrefix = "fairlead-"
)

// StatusArgs ask whether more blocks can be had.
type StatusArgs = BlockArgs

// StatusResult is what the agent knows.
type StatusResult struct {
	Node  string `json:"node"`
	Store string `json:"store,omitempty"` // why it cannot be reached; "": it can
	Free  bool   `json:"free"`            // every subnet asked for has a block that nobody has
}

// Want is one address that is asked for.
type Want struct {
	Ranges []Span     `json:"ranges"`
	IP     netip.Addr `json:"ip,omitzero"` // this one
	Fixed  bool       `json:"fixed,omitempty"`
}

// Span is addresses from one to another.
type Span struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Contains tells whether an address is in it.
func (s Span) Contains(a netip.Addr) bool {
	return a.BitLen() == s.First.BitLen() && !a.Less(s.First) && !s.Last.Less(a)
}

func (s Span) String() string { return fmt.Sprintf("%s-%s", s.First, s.Last) }

// ClaimArgs ask for addresses that are the cluster's to give; all or none.
type ClaimArgs struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifName"`
	Pod       string `json:"pod,omitempty"` // "NAMESPACE/NAME"
	Wants     []Want `json:"wants"`

	// Foreign is a network that the cluster does not know: whereabouts'. Its
	// ranges are the configuration's own.
	Foreign bool `json:"foreign,omitempty"`
}

// ClaimResult has an address for each that was wanted.
type ClaimResult struct {
	IPs []netip.Addr `json:"ips"`
}

// ReportArgs are an interface of a container.
type ReportArgs struct {
	Container string       `json:"container"`
	IfName    string       `json:"ifName"`
	Network   string       `json:"network"`
	Pod       string       `json:"pod,omitempty"`
	IPs       []netip.Addr `json:"ips"`
	Gone      bool         `json:"gone,omitempty"`
}
