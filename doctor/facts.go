package doctor

import (
	"net/netip"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Facts are what was found on a host, before any judgement.
type Facts struct {
	Host        *inspect.Survey
	Ruleset     *nft.Ruleset
	Sysctls     map[string]string // of the host, by key with slashes; absent: the kernel has none
	Attachments []*Attachment
	Plugins     []MissingPlugin
	Ranges      []RangeUse
	Agent       Agent
	OtherBoot   []string // files of records that another boot wrote
	Upstream    []netip.Addr
}

// Attachment is what was found of one.
type Attachment struct {
	Network, Container, IfName string
	Netns                      string
	State                      string // as fairlead list has it
	Objects                    kernel.Objects
	Lost                       []kernel.Difference // what a repair would restore
	Addrs                      []netip.Prefix      // of its result
	Gateways                   []netip.Addr
	MAC                        string // of its result; "" if it names none
	Ports                      []attach.Port
	Inside                     *inspect.Survey // nil: the namespace could not be looked at
	HostEnd                    string          // "" if it has none
	Bridge                     string          // "" if its host end is no port
	Paths                      []Path
	Nameservers                []netip.Addr
	Resolv                     string // the file that names them
	LocalDNS                   bool   // somebody in the container listens for DNS
	Held                       []HeldAddr
	Silent                     []netip.Addr // gateways that did not answer a probe
}

// Path is where the host sends packets of a container.
type Path struct {
	From netip.Addr
	Out  int    // ifindex of the link towards others; 0: none
	Err  string // why there is none
	Back int    // ifindex of the link towards the container; 0: none
}

// HeldAddr is who holds an attachment's address in the directory of host-local.
type HeldAddr struct {
	File  string
	Addr  netip.Addr
	Owner ipam.Owner // of the file
	Mine  ipam.Owner
	Free  bool // there is no file
}

// MissingPlugin is a plugin that a network wants and no directory has.
type MissingPlugin struct {
	Network, Type string
	Dirs          []string
	Ours          string // a program that could serve it; ""
}

// RangeUse is how full a range set of a network is.
type RangeUse struct {
	Network    string
	Range      string
	Held, Size int
	Gone       int // of those held: by attachments that are gone
}

// Agent is what was found of this host's node agent.
type Agent struct {
	Needed []string // networks whose containers get their addresses by it, or are on networks of the cluster
	Away   string   // why it does not answer; "" if it does, or is not needed
	Why    []string // it answers, and is not ready
	Cannot []string // it answers, and cannot do this for the host's addresses
	Store  string   // it answers, and cannot reach the store: why
}

const inHost, inside = "host", "container"

// link finds a link of a survey by name.
func link(s *inspect.Survey, name string) *kernel.LinkInfo {
	if s == nil || name == "" {
		return nil
	}
	for _, l := range s.Links {
		if l.Name == name {
			return l
		}
	}
	return nil
}

func byIndex(s *inspect.Survey, index int) *kernel.LinkInfo {
	for _, l := range s.Links {
		if l.Index == index {
			return l
		}
	}
	return nil
}

// repair is the command that restores an attachment.
func (a *Attachment) repair() string {
	return "fairlead repair --network " + a.Network + " --container " + a.Container
}

// in is how a command is run in the container's namespace.
func (a *Attachment) in(command string) string { return "nsenter --net=" + a.Netns + " " + command }

// upstream is the link through which packets of the container leave the host, by
// the routes there are.
func (a *Attachment) upstream(f *Facts, v4 bool) *kernel.LinkInfo {
	for _, p := range a.Paths {
		if p.From.Is4() == v4 && p.Out != 0 {
			return byIndex(f.Host, p.Out)
		}
	}
	return nil
}

// arrives is the host's link by which the container's packets come in: its bridge,
// or its host end.
func (a *Attachment) arrives(f *Facts) *kernel.LinkInfo {
	end := link(f.Host, a.HostEnd)
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
