package plugin

import (
	"context"
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
	Name    string // the "type" in configurations
	About   string // what it does, in one sentence
	Version string // its own version: see skel.Plugin
	// Chained plugins work on the prevResult and call no IPAM plugin.
	Chained bool
	// Exclusive plugins run one ADD at a time in a namespace, because they take a free name or number in it.
	Exclusive bool
	// IfName is the fixed interface that the plugin works on, whatever CNI_IFNAME is: lo.
	IfName string
	// New returns an empty configuration, with defaults, to decode into.
	New func() Config
}

// Config is a plugin's configuration: a struct that embeds Conf. Its methods are pure functions of the configuration,
// the attachment and the attachment's facts: they make no system call, and may be called several times.
type Config interface {
	common() *Conf

	// Validate completes the configuration. It rejects invalid values with cni.Invalid(c.Raw, key, problem).
	Validate(*Attachment) error

	// Links returns the links that should exist, in order of creation, and appends the attachment's interfaces to the
	// result.
	Links(*Attachment, *cni.Result) (kernel.Objects, error)

	// Addressed returns the other objects, once the addresses are known. r holds the addresses from IPAM or, for a
	// chained plugin, the prevResult. Addressed may complete r.
	Addressed(a *Attachment, r *cni.Result) (kernel.Objects, error)
}

// A Config may implement these interfaces.
type (
	// A Readier reports to STATUS whether an ADD would work. Its waits end with the context.
	Readier interface {
		Ready(context.Context, *Attachment) error
	}

	// A Finder returns, without a result or a record, what an attachment may have created in addition to its Links.
	Finder interface {
		Find(*Attachment) (kernel.Objects, error)
	}

	// A ReferenceFinder returns the host's rules and links that the reference plugin of the same name creates for an
	// attachment. DEL and GC search for them if the attachment has no record.
	ReferenceFinder interface {
		ReferenceObjects(*Attachment) kernel.Objects
	}

	// A Switcher has objects in Open vSwitch and provides the client for its database.
	Switcher interface {
		Switch(*Attachment) kernel.Switch
	}

	// A Claimer returns the host ports that must be free before the kernel is changed. The attachment holds them while
	// it exists.
	Claimer interface{ Claims() []attach.Port }
)

// Conf has the keys of every configuration; embed it.
type Conf struct {
	cni.PluginConf
	Args    Args    `json:"args,omitzero"`
	Runtime Runtime `json:"runtimeConfig,omitzero"`

	Raw  []byte      `json:"-"` // the whole configuration as received
	Prev *cni.Result `json:"-"` // prevResult, or nil
}

// Runtime is the part of runtimeConfig that several plugins read. A plugin that reads more embeds it in its own type.
type Runtime struct {
	MAC      string `json:"mac,omitempty"`
	DeviceID string `json:"deviceID,omitempty"`
}

// Args are a configuration's arguments; "cni" is the part that the CNI conventions define.
type Args struct {
	CNI json.RawMessage `json:"cni,omitempty"`
}

//lint:ignore U1000 the interface config asks for it, through the structs that embed Conf
func (c *Conf) common() *Conf { return c }

// Validate accepts everything. Plugins with keys of their own override it.
func (c *Conf) Validate(*Attachment) error { return nil }

// Links returns no objects.
func (c *Conf) Links(*Attachment, *cni.Result) (kernel.Objects, error) { return nil, nil }

// Attachment is the attachment to one network that an operation is about.
type Attachment struct {
	kernel.Owner
	Netns string // path; "" if DEL got none
	Args  string // CNI_ARGS, unparsed: a plugin that reads none of them accepts anything
	Facts Facts
}

// ContainerMAC returns the hardware address of the container's interface. It is the same whenever the container is
// attached to this host. On another host, the same names lead to another address: both may be in one LAN.
func (a *Attachment) ContainerMAC() string {
	return kernel.MAC("mac", a.Facts.HostID(), a.Network, a.ContainerID, a.IfName)
}

// Facts answers the questions that a plugin may ask about the host and the container. A plugin sees a snapshot, which does
// not change while its function runs. The function may run several times until the snapshot has all answers. Tests
// implement Facts without a kernel.
type Facts interface {
	// Link returns a link by name, or os.ErrNotExist.
	Link(kernel.Side, string) (*kernel.LinkInfo, error)
	Links(kernel.Side) ([]*kernel.LinkInfo, error)
	// OtherEnd returns the host's end of a link in the container, or os.ErrNotExist.
	OtherEnd(*kernel.LinkInfo) (*kernel.LinkInfo, error)
	// Sysctl reads a key, with slashes, below /proc/sys. A missing key is os.ErrNotExist.
	Sysctl(kernel.Side, string) (string, error)
	// Addrs lists the addresses of a link.
	Addrs(kernel.Side, *kernel.LinkInfo) ([]kernel.AddrInfo, error)
	// Routes and Rules list routes and rules of a family (kernel.IPv4, kernel.IPv6). Table 0 means all tables.
	Routes(s kernel.Side, family byte, table int) ([]kernel.RouteInfo, error)
	Rules(s kernel.Side, family byte) ([]kernel.RuleInfo, error)
	// LinkTo returns the host's link through which packets to an address leave.
	LinkTo(netip.Addr) (string, error)
	// DefaultLink returns the link of a side's default route, or os.ErrNotExist.
	DefaultLink(kernel.Side) (string, error)
	// Uplinks returns the host's links with a default route from a router advertisement.
	Uplinks() ([]string, error)
	// ForwardDropChains returns third-party forward chains that may drop a container's packets, and iptables' chains
	// if the administrator's chain has rules.
	ForwardDropChains(adminChain string) ([]kernel.ForwardDropChain, error)
	// Firewalld reports whether firewalld runs on the host.
	Firewalld() bool
	// HostID returns an ID of this host.
	HostID() string
	// ReadFile, Readlink and Glob are like the functions of packages os and filepath, on the host.
	ReadFile(path string) ([]byte, error)
	Readlink(path string) (string, error)
	Glob(pattern string) ([]string, error)
}

// parse reads and validates arguments and configuration. With an error it returns what it could read; DEL and GC
// continue with that.
func (p *Plugin) parse(args *skel.CmdArgs, f Facts) (Config, *Attachment, error) {
	c := p.New()
	base := c.common()
	err := cni.Decode(args.StdinData, c)
	if err != nil {
		_ = json.Unmarshal(args.StdinData, &base.PluginConf) // the keys that every plugin needs
	}
	base.Raw = args.StdinData
	if err == nil && base.HasPrevResult() {
		base.Prev, err = wire.DecodePrev(base.Raw, base.CNIVersion, base.RawPrevResult)
	}
	a := &Attachment{
		Owner: kernel.Owner{Network: base.Name, ContainerID: args.ContainerID, IfName: args.IfName},
		Netns: args.Netns, Args: args.Args, Facts: f,
	}
	if err == nil {
		err = c.Validate(a)
	}
	return c, a, err
}
