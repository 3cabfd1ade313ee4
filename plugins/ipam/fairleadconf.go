package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/cni"
)

// annotations is the capability with which runtimes pass a pod's annotations; ipsAnnotation is the one that requests
// addresses.
const (
	ipsAnnotation = "fairlead.io/ips"
)

// coolDown is the time during which a released address is allocated only if there is no other.
const coolDown = 30 * time.Second

type fairleadConf struct {
	Network   string       `json:"network"`
	Pool      string       `json:"pool"`
	Fixed     bool         `json:"fixed"`
	Addresses []choiceConf `json:"addresses"`
	Routes    []routeConf  `json:"routes"`
	DNS       cni.DNS      `json:"dns"`
	CoolDown  *int         `json:"coolDown"` // seconds

	// DefaultRoute adds the default route to the routes of a configuration that lists none; nil: for eth0.
	DefaultRoute *bool `json:"defaultRoute"`
}

// choiceConf requests an address of each family that a pool has.
type choiceConf struct {
	Pool   string `json:"pool"`
	Fixed  bool   `json:"fixed"`
	Family int    `json:"family"` // 4 or 6; 0: every family of the pool
}

// fairlead is a valid configuration.
type fairlead struct {
	data          []byte
	version, name string // of the CNI network
	network       string // of the cluster
	choices       []choiceConf
	requested     []netip.Addr
	pod           string // "NAMESPACE/NAME"
	routes        []cni.Route
	hasRoutes     bool
	defaultRoute  *bool // nil: for eth0
	dns           cni.DNS
	coolDown      time.Duration
	dir           local.Dir
	byAgent       bool // the agent allocates every address, so this node keeps no cursor and no cool-down
}

func parseFairlead(data []byte, cniArgs string) (*fairlead, error) {
	c, err := decode[fairleadConf](data)
	if err != nil {
		return nil, err
	}
	f := &fairlead{data: data, version: c.CNIVersion, name: c.Name, network: c.IPAM.Network, dns: c.IPAM.DNS, coolDown: coolDown, dir: local.Open("", "")}
	if f.network == "" {
		f.network = defaultNetwork
	}
	if err := cni.ValidateNetworkName(f.network); err != nil {
		return nil, cni.Invalid(data, "ipam.network", err.Error())
	}
	if f.choices, err = choices(data, c.IPAM); err != nil {
		return nil, err
	}
	if s := c.IPAM.CoolDown; s != nil {
		if *s < 0 || *s > 86400 {
			return nil, cni.Invalid(data, "ipam.coolDown", "want seconds, 0 to 86400")
		}
		f.coolDown = time.Duration(*s) * time.Second
	}
	if f.routes, err = routes(data, c.IPAM.Routes); err != nil {
		return nil, err
	}
	f.hasRoutes, f.defaultRoute = c.IPAM.Routes != nil, c.IPAM.DefaultRoute
	if f.pod, err = podOf(cniArgs); err != nil {
		return nil, err
	}
	f.requested, err = fairleadRequested(data, c, cniArgs)
	return f, err
}

const defaultNetwork = "default"

func choices(data []byte, c *fairleadConf) ([]choiceConf, error) {
	if len(c.Addresses) == 0 {
		return []choiceConf{{Pool: c.Pool, Fixed: c.Fixed}}, nil
	}
	if c.Pool != "" || c.Fixed {
		return nil, cni.Invalid(data, "ipam.addresses", `cannot be combined with "pool" or "fixed": set these within addresses, like [{"pool": "a"}, {"pool": "b", "fixed": true}]`)
	}
	for i, a := range c.Addresses {
		if a.Family != 0 && a.Family != 4 && a.Family != 6 {
			return nil, cni.Invalid(data, fmt.Sprintf("ipam.addresses[%d].family", i), "want 4 or 6; without it, one address of each family of the pool is allocated")
		}
	}
	return c.Addresses, nil
}

// podOf returns the pod's name from the arguments of Kubernetes runtimes, or "".
func podOf(cniArgs string) (string, error) {
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return "", err
	}
	if err := args.Check("IP", "K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_INFRA_CONTAINER_ID", "K8S_POD_UID"); err != nil {
		return "", err
	}
	ns, _ := args.Get("K8S_POD_NAMESPACE")
	name, _ := args.Get("K8S_POD_NAME")
	if ns == "" || name == "" {
		return "", nil
	}
	return ns + "/" + name, nil
}

// fairleadRequested returns the requested addresses. The first source counts: runtimeConfig, args, the pod's
// annotation, CNI_ARGS.
func fairleadRequested(data []byte, c conf[fairleadConf], cniArgs string) ([]netip.Addr, error) {
	var more struct {
		RuntimeConfig struct {
			Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
		} `json:"runtimeConfig"`
	}
	if err := cni.Decode(data, &more); err != nil {
		return nil, err
	}
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return nil, err
	}
	ip, _ := args.Get("IP")
	for _, source := range []struct {
		key string
		ips []string
	}{{"runtimeConfig.ips", c.RuntimeConfig.IPs}, {"args.cni.ips", c.Args.CNI.IPs},
		{"annotation " + ipsAnnotation, splitList(more.RuntimeConfig.Annotations[ipsAnnotation])}, {"CNI_ARGS: IP", splitList(ip)}} {
		if len(source.ips) == 0 {
			continue
		}
		var out []netip.Addr
		for i, text := range source.ips {
			a, err := cni.ParseAddress(text)
			switch {
			case err == nil:
				out = append(out, a)
			case strings.Contains(source.key, " "):
				return nil, cni.Errorf(cni.CodeInvalidEnvironment, "%s=%s: %s", source.key, text, wantRequested)
			default:
				return nil, cni.Invalid(data, fmt.Sprintf("%s[%d]", source.key, i), wantRequested)
			}
		}
		return out, nil
	}
	return nil, nil
}

// group is one address of an attachment: subnets of one family to allocate it from.
type group struct {
	pool    string
	fixed   bool
	subnets []local.Subnet
	ip      netip.Addr // requested, or allocated by the cluster
	gateway netip.Addr // of a cluster address; second: it is the subnet's second address
	second  bool
}

func (g *group) cluster() bool { return g.subnets[0].Cluster() }

func (g *group) contains(a netip.Addr) bool {
	return slices.ContainsFunc(g.subnets, func(s local.Subnet) bool { return s.CIDR.Contains(a) })
}

// groups returns an attachment's groups for this node's view of the network.
func (f *fairlead) groups(n *local.Network) ([]*group, error) {
	var out []*group
	for i, c := range f.choices {
		subnets := pool(n, c)
		key := "ipam.pool"
		if len(f.choices) > 1 || strings.Contains(string(f.data), `"addresses"`) {
			key = fmt.Sprintf("ipam.addresses[%d]", i)
		}
		before := len(out)
		for _, six := range []bool{false, true} {
			of := slices.DeleteFunc(slices.Clone(subnets), func(s local.Subnet) bool {
				return s.CIDR.Addr().Is6() != six || c.Family == 4 && six || c.Family == 6 && !six
			})
			if len(of) == 0 {
				continue
			}
			// If a pool has both kinds, prefer the subnets that need no agent.
			blocks := slices.DeleteFunc(slices.Clone(of), local.Subnet.Cluster)
			if len(blocks) > 0 {
				of = blocks
			}
			out = append(out, &group{pool: c.Pool, fixed: c.Fixed, subnets: of, second: true})
		}
		if len(out) == before {
			return nil, cni.Invalid(f.data, key, noPool(n, c))
		}
	}
	return out, f.assign(n, out)
}

// pool returns the subnets of a choice: those with its name. Without a name, it returns those without one; if all
// subnets have names, all those that are allocated in blocks.
func pool(n *local.Network, c choiceConf) []local.Subnet {
	pick := func(keep func(local.Subnet) bool) (out []local.Subnet) {
		for _, s := range n.Subnets {
			if keep(s) && (s.Cluster() || !c.Fixed) {
				out = append(out, s)
			}
		}
		return out
	}
	out := pick(func(s local.Subnet) bool { return s.Name == c.Pool })
	if len(out) == 0 && c.Pool == "" {
		out = pick(func(s local.Subnet) bool { return c.Fixed || !s.Cluster() })
	}
	return out
}

func noPool(n *local.Network, c choiceConf) string {
	var have []string
	for _, s := range n.Subnets {
		kind := ""
		if s.Cluster() {
			kind = `, "assign": "cluster"`
		}
		have = append(have, fmt.Sprintf("%q (%s%s)", s.Name, s.CIDR, kind))
	}
	what := fmt.Sprintf("network %s has no subnet in pool %q", n.Name, c.Pool)
	if c.Fixed {
		what += ` with "assign": "cluster", which fixed addresses need`
	}
	return what + ": it has " + strings.Join(have, ", ")
}
