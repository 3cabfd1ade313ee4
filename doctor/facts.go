package doctor

import (
	"net/netip"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Facts are the data that doctor gathered on a host, without judgement.
type Facts struct {
	Host        *inspect.Survey
	Ruleset     *nft.Ruleset
	Sysctls     map[string]string // sysctls of the host, by key with slashes; a key that the kernel lacks is absent
	Attachments []*Attachment
	Plugins     []MissingPlugin
	Ranges      []RangeUse
	Agent       Agent
	Tunnels     []*kernel.LinkInfo // the agent's VXLAN links
	StateDir    error              // why the directory of records cannot be used; nil if it can
	Damaged     []attach.Damaged
	OtherBoot   []string // record files from another boot
	Upstream    []netip.Addr
}

// Attachment contains the data that doctor gathered about one attachment.
type Attachment struct {
	Network, Container, IfName string // the interface's name in the container
	Netns                      string
	State                      string // as "fairlead list" prints it
	HostGone                   string // path of the isolated network's namespace if it does not exist, or ""
	Objects                    kernel.Objects
	Lost                       []kernel.Difference // what a repair would restore
	Addrs                      []netip.Prefix      // addresses in its result
	Gateways                   []netip.Addr
	MAC                        string // hardware address in its result; "" if there is none
	Ports                      []attach.Port
	Inside                     *inspect.Survey // nil if the namespace could not be read
	HostEnd                    string          // name of the host end; "" if there is none
	Bridge                     string          // "" if the host end is not a bridge port
	Paths                      []Path
	Nameservers                []netip.Addr
	Resolv                     string // the file that lists the name servers
	LocalDNS                   bool   // a process in the container listens for DNS
	Held                       []HeldAddr
	Lease                      Lease
	Silent                     []netip.Addr // gateways that did not answer a probe
}

// Path describes how the host routes a container's packets.
type Path struct {
	From netip.Addr
	Out  int    // ifindex of the link towards other hosts; 0 if there is none
	Err  string // why there is no link
	Back int    // ifindex of the link towards the container; 0 if there is none
}

// HeldAddr describes who holds an attachment's address in host-local's directory.
type HeldAddr struct {
	File     string
	Addr     netip.Addr
	Owner    ipam.Owner // owner in the file
	Expected ipam.Owner
	Free     bool // there is no file
}

// Lease says what is wrong with an attachment's addresses from DHCP.
type Lease struct {
	Problem string // "" if nothing is
	Away    bool   // no daemon answers
	Unknown bool   // the daemon has no lease for the attachment
}

// MissingPlugin is a plugin that a network needs and that no directory has.
type MissingPlugin struct {
	Network, Type string
	Dirs          []string
	Ours          string // a Fairlead program that could serve it, or ""
}

// RangeUse says how full a range set of a network is.
type RangeUse struct {
	Network    string
	Range      string
	Held, Size int
	Gone       int // how many of the held addresses belong to attachments that are gone
}

// Agent contains the data that doctor gathered about this host's node agent.
type Agent struct {
	Needed     []string // networks that need the agent: for addresses, or because they are networks of the cluster
	Away       string   // why it does not answer; "" if it answers or is not needed
	Reasons    []string // why it is not ready
	Failures   []string // what failed for the host's addresses
	StoreError string   // why it cannot reach the store
	NotReached []string // nodes that it cannot reach, with the reason
}

func byIndex(s *inspect.Survey, index int) *kernel.LinkInfo {
	for _, l := range s.Links {
		if l.Index == index {
			return l
		}
	}
	return nil
}

// repair returns the command that restores an attachment.
func (a *Attachment) repair() string {
	return "fairlead repair --network " + a.Network + " --container " + a.Container
}

// in returns a command that runs in the container's namespace.
func (a *Attachment) in(command string) string { return "nsenter --net=" + a.Netns + " " + command }

// upstream returns the link through which the container's packets leave the host, by the current routes.
func (a *Attachment) upstream(f *Facts, v4 bool) *kernel.LinkInfo {
	for _, p := range a.Paths {
		if p.From.Is4() == v4 && p.Out != 0 {
			return byIndex(f.Host, p.Out)
		}
	}
	return nil
}

// arrives returns the host's link on which the container's packets arrive: its bridge or its host end.
func (a *Attachment) arrives(f *Facts) *kernel.LinkInfo {
	end := f.Host.Link(a.HostEnd)
	if end == nil || end.Master == 0 {
		return end
	}
	if m := byIndex(f.Host, end.Master); m != nil {
		return m
	}
	return end
}

func has(all []Finding, name string) bool {
	for _, x := range all {
		if x.Name == name {
			return true
		}
	}
	return false
}
