package local

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// A request and its answer are one line of JSON each. After using the answer, the caller confirms with one more byte.
// The version grows when an older agent would misinterpret a request.
const (
	ProtocolVersion = 1
	Taken           = '\n'
	MaxLine         = 1 << 20 // bytes
)

// The operations. An agent may have more.
const (
	OpStatus  = "status"  // StatusArgs -> StatusResult
	OpBlock   = "block"   // BlockArgs -> nothing: adds a block to the network's file
	OpClaim   = "claim"   // ClaimArgs -> ClaimResult
	OpPreview = "foresee" // ClaimArgs -> ClaimResult: what OpClaim would assign, without assigning it
	OpReport  = "report"  // ReportArgs -> nothing: publishes an endpoint
	OpNetwork = "network" // NetworkArgs -> nothing: waits for the isolated network's namespace
	OpAgent   = "agent"   // nothing -> the agent's State
	OpStore   = "store"   // nothing -> the part of the agent's configuration that locates its store and policies, and its node
)

// Request is a plugin's request to the agent.
type Request struct {
	Version int             `json:"v"`
	Op      string          `json:"op"`
	Args    json.RawMessage `json:"args,omitempty"`
}

// Answer is the agent's answer.
type Answer struct {
	Version int             `json:"v"`
	Error   *Error          `json:"error,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

// Error is an error answer with the CNI error code for the plugin.
type Error struct {
	Code uint   `json:"code"`
	Msg  string `json:"msg"`
}

func (e *Error) Error() string { return e.Msg }

// BlockArgs request another block of each subnet.
type BlockArgs struct {
	Network string         `json:"network"`
	Subnets []netip.Prefix `json:"subnets,omitempty"` // none: only write the network's file
}

// NetworkArgs request an isolated network on this host.
type NetworkArgs struct {
	Network string `json:"network"`
}

// NetnsPath returns the path of an isolated network's namespace, which is the same on every host. All such paths begin
// with NetnsDir and NetnsPrefix.
func NetnsPath(network string) string { return NetnsDir + "/" + NetnsPrefix + network }

// IsolatedNetwork returns the isolated network whose namespace is at a path.
func IsolatedNetwork(path string) (network string, is bool) {
	if network, is = strings.CutPrefix(path, NetnsPath("")); is {
		return network, true
	}
	return "", false
}

// The directory where ip(8) looks for named namespaces, and the prefix of our names there.
const (
	NetnsDir    = "/run/netns"
	NetnsPrefix = "fairlead-"
)

// StatusArgs ask whether more blocks are available.
type StatusArgs = BlockArgs

// StatusResult is the agent's status for plugins.
type StatusResult struct {
	Node  string `json:"node"`
	Store string `json:"store,omitempty"` // why the store cannot be reached; "": it can
	Free  bool   `json:"free"`            // every requested subnet has a free block
}

// Want is a request for one address.
type Want struct {
	Ranges []Span     `json:"ranges"`
	IP     netip.Addr `json:"ip,omitzero"` // a specific address
	Fixed  bool       `json:"fixed,omitempty"`
}

// Span is a range of addresses, both ends included.
type Span struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Contains reports whether an address is in the range.
func (s Span) Contains(a netip.Addr) bool {
	return a.BitLen() == s.First.BitLen() && !a.Less(s.First) && !s.Last.Less(a)
}

func (s Span) String() string { return fmt.Sprintf("%s-%s", s.First, s.Last) }

// ClaimArgs request individually assigned addresses: all or none.
type ClaimArgs struct {
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifName"`
	Pod       string `json:"pod,omitempty"` // "NAMESPACE/NAME"
	Wants     []Want `json:"wants"`

	// Whereabouts marks a whereabouts network, which is not in the store. Its ranges come from the network
	// configuration.
	Whereabouts bool `json:"foreign,omitempty"`
}

// ClaimResult has one address for each Want.
type ClaimResult struct {
	IPs []netip.Addr `json:"ips"`
}

// ReportArgs describe a container's interface.
type ReportArgs struct {
	Container string       `json:"container"`
	IfName    string       `json:"ifName"`
	Network   string       `json:"network"`
	Pod       string       `json:"pod,omitempty"`
	IPs       []netip.Addr `json:"ips"`
	Gone      bool         `json:"gone,omitempty"`
}
