package plugin

import (
	"encoding/json"
	"net/netip"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// Plugin is a declarative plugin.
type Plugin struct {
	Name  string // the type by which configurations ask for it
	About string // what it does, in one sentence
	// Chained: it works on what plugins before it made, and asks no IPAM.
	Chained bool
	// Exclusive: one ADD at a time in a namespace, as it takes what is free there.
	Exclusive bool
	// IfName is the interface that it works on whatever CNI_IFNAME says: lo.
	IfName string
	// New makes an empty configuration, with defaults, to decode into.
	New func() Config
}

// Config is a plugin's configuration: a struct that embeds Conf and whose
// methods are pure functions of it, the attachment and the facts they name.
type Config interface {
	common() *Conf

	// Validate completes the configuration, and refuses what is not allowed
	// with cni.Invalid(c.Raw, key, problem).
	Validate(*Attachment) error

	// Links states the links that should exist, in order of creation, and
	// appends the attachment's interfaces to the result.
	Links(*Attachment, *cni.Result) (kernel.Objects, error)

	// Addressed states the rest, once addresses are known: r holds those that
	// IPAM gave, or, for a chained plugin, what came before. It may complete r.
	Addressed(a *Attachment, r *cni.Result) (kernel.Objects, error)
}

// These are what a Config may offer besides.
type (
	// A Readier tells STATUS whether an ADD could be served.
	Readier interface{ Ready(*Attachment) error }

	// A Finder names, without a result or a record, what an attachment may
	// have made beyond its Links.
	Finder interface {
		Find(*Attachment) (kernel.Objects, error)
	}

	// An Heir names what the reference's plugin of that name makes for an attachment in
	// rules and links of the host: DEL and GC of one that has no record of ours look for it.
	Heir interface {
		Inherited(*Attachment) kernel.Objects
	}

	// A Switcher has objects in Open vSwitch, and brings along what speaks with it.
	Switcher interface {
		Switch(*Attachment) kernel.Switch
	}

	// A Claimer names what must be free before the kernel is changed: the host
	// ports. They are held while the attachment stands.
	Claimer interface{ Claims() []attach.Port }
)

// Conf is what every configuration has; embed it.
type Conf struct {
	cni.PluginConf
	Args    Args    `json:"args,omitzero"`
	Runtime Runtime `json:"runtimeConfig,omitzero"`

	Raw  []byte      `json:"-"` // the whole, as it came
	Prev *cni.Result `json:"-"` // prevResult, or nil
}

// Runtime is the part of runtimeConfig that more than one plugin reads; one
// that reads more has a runtimeConfig of its own, which embeds this.
type Runtime struct {
	MAC      string `json:"mac,omitempty"`
	DeviceID string `json:"deviceID,omitempty"`
}

// Args are a configuration's arguments; "cni" is the part that plugins agree on.
type Args struct {
	CNI json.RawMessage `json:"cni,omitempty"`
}

func (c *Conf) common() *Conf { return c }

// Validate accepts everything; a plugin with keys of its own has its own.
func (c *Conf) Validate(*Attachment) error { return nil }

// Links states none.
func (c *Conf) Links(*Attachment, *cni.Result) (kernel.Objects, error) { return nil, nil }

// Attachment is the attachment to one network that an operation is about.
type Attachment struct {
	kernel.Owner
	Netns string   // path; "" when DEL was not told
	Args  cni.Args // CNI_ARGS
	Facts Facts
}

// Facts are the questions that a plugin may ask about the machine; a test can
// answer them without one.
type Facts interface {
	// Link looks a link up by name; none is os.ErrNotExist.
	Link(kernel.Side, string) (*kernel.LinkInfo, error)
	Links(kernel.Side) ([]*kernel.LinkInfo, error)
	// OtherEnd is the host's end of a link in the container; none is os.ErrNotExist.
	OtherEnd(*kernel.LinkInfo) (*kernel.LinkInfo, error)
	// Sysctl reads a key, with slashes, below /proc/sys; none is os.ErrNotExist.
	Sysctl(kernel.Side, string) (string, error)
	// Routes and Rules list those of a family (kernel.IPv4, kernel.IPv6); table 0
	// is all of them.
	Routes(s kernel.Side, family byte, table int) ([]kernel.RouteInfo, error)
	Rules(s kernel.Side, family byte) ([]kernel.RuleInfo, error)
	// LinkTo is the host's link by which packets to an address leave.
	LinkTo(netip.Addr) (string, error)
	// DefaultLink is the link by which a side's default route leaves; none is os.ErrNotExist.
	DefaultLink(kernel.Side) (string, error)
	// Uplinks are the host's links with a default route from a router's advertisement.
	Uplinks() []string
	// Dropping are the forward chains of others whose policy is to drop.
	Dropping() ([]kernel.ForwardDropChain, error)
	// Firewalld tells whether firewalld rules the host.
	Firewalld() bool
	// HostID is a word that tells this host from others.
	HostID() string
}

// parse reads arguments and configuration, and validates both. It returns
// what it could read with the error: DEL and GC go on with that.
func (p *Plugin) parse(args *skel.CmdArgs, f Facts) (Config, *Attachment, error) {
	c := p.New()
	base := c.common()
	err := cni.Decode(args.StdinData, c)
	if err != nil {
		_ = json.Unmarshal(args.StdinData, &base.PluginConf) // what every plugin needs
	}
	base.Raw = args.StdinData
	if err == nil && len(base.RawPrevResult) > 0 {
		base.Prev, err = wire.Decode(base.CNIVersion, base.RawPrevResult)
	}
	ca, argsErr := cni.ParseArgs(args.Args)
	a := &Attachment{
		Owner: kernel.Owner{Network: base.Name, ContainerID: args.ContainerID, IfName: args.IfName},
		Netns: args.Netns, Args: ca, Facts: f,
	}
	if err == nil {
		err = argsErr
	}
	if err == nil {
		err = c.Validate(a)
	}
	return c, a, err
}
