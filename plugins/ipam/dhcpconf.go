package ipam

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/fairlead/fairlead/cni"
)

// DefaultDHCPSocket is the DHCP daemon's default socket.
const DefaultDHCPSocket = "/run/cni/dhcp.sock"

// maxSocketPath is the length of sockaddr_un's path without its terminating NUL, unix(7).
const maxSocketPath = 107

// DHCPConf is the configuration of one attachment whose addresses come by DHCP.
type DHCPConf struct {
	Network string
	Version string // cniVersion
	Socket  string // of the daemon

	V4       bool // get an IPv4 address by DHCPv4
	V6       bool // get an IPv6 address by DHCPv6
	AcceptRA bool // use the default route and addresses of router advertisements

	Request  []uint8 // options to request, in order
	Provide  []DHCPOption
	Priority int         // metric of the routes from DHCP
	Routes   []cni.Route // in addition to those from DHCP
}

// DHCPOption is a DHCPv4 option with its value.
type DHCPOption struct {
	Code  uint8
	Value []byte
}

// Options that are requested by default, and those for DNS.
const (
	OptSubnetMask   = 1
	OptRouters      = 3
	OptNameServers  = 6
	OptDomainName   = 15
	OptClientID     = 61
	OptDomainSearch = 119
)

// optionNames maps the names that a configuration may use to options.
func optionNames() map[string]uint8 {
	return map[string]uint8{
		"subnet-mask": OptSubnetMask, "routers": OptRouters, "domain-name-servers": OptNameServers, "host-name": 12,
		"domain-name": OptDomainName, "interface-mtu": 26, "broadcast-address": 28, "static-routes": 33, "ntp-servers": 42,
		"vendor-class-identifier": 60, "dhcp-client-identifier": OptClientID, "user-class": 77, "domain-search": OptDomainSearch,
		"classless-static-routes": 121,
	}
}

// reservedOption reports whether only the client itself may set an option: padding, the address, the message type, the
// server, the request list, the end.
func reservedOption(code uint8) bool {
	switch code {
	case 0, 50, 53, 54, 55, 255:
		return true
	}
	return false
}

// optionKey is an option's name in a configuration, or "".
type optionKey string

func (o *optionKey) UnmarshalJSON(b []byte) error {
	var n json.Number
	if len(b) > 0 && b[0] != '"' && json.Unmarshal(b, &n) == nil {
		*o = optionKey(n)
		return nil
	}
	return json.Unmarshal(b, (*string)(o))
}

func (o optionKey) code() (uint8, bool) {
	if code, ok := optionNames()[string(o)]; ok {
		return code, true
	}
	n, err := strconv.ParseUint(string(o), 10, 8)
	return uint8(n), err == nil && n > 0 && n < 255
}

const wantOption = `want a number from 1 to 254, or a name: subnet-mask, routers, domain-name-servers, host-name, domain-name, interface-mtu, ` +
	`broadcast-address, static-routes, ntp-servers, vendor-class-identifier, dhcp-client-identifier, user-class, domain-search, classless-static-routes`

type dhcpConf struct {
	DaemonSocketPath string `json:"daemonSocketPath"`
	Request          []struct {
		SkipDefault bool      `json:"skipDefault"`
		Option      optionKey `json:"option"`
	} `json:"request"`
	Provide []struct {
		Option  optionKey `json:"option"`
		Value   string    `json:"value"`
		FromArg string    `json:"fromArg"`
	} `json:"provide"`
	Priority int         `json:"priority"`
	Routes   []routeConf `json:"routes"`
	DHCP4    *bool       `json:"dhcp4"`
	DHCP6    bool        `json:"dhcp6"`
	AcceptRA bool        `json:"acceptRA"`
}

// ParseDHCP parses the configuration of an attachment with these CNI_ARGS.
func ParseDHCP(data []byte, cniArgs string) (*DHCPConf, error) {
	c, err := decode[dhcpConf](data)
	if err != nil {
		return nil, err
	}
	out := &DHCPConf{
		Network: c.Name, Version: c.CNIVersion, Socket: c.IPAM.DaemonSocketPath, Priority: c.IPAM.Priority,
		V4: c.IPAM.DHCP4 == nil || *c.IPAM.DHCP4, V6: c.IPAM.DHCP6, AcceptRA: c.IPAM.AcceptRA,
	}
	switch {
	case out.Socket == "":
		out.Socket = DefaultDHCPSocket
	case len(out.Socket) > maxSocketPath:
		return nil, cni.Invalid(data, "ipam.daemonSocketPath", fmt.Sprintf("want the path of a socket, at most %d bytes", maxSocketPath))
	}
	if out.Priority < 0 || out.Priority > math.MaxUint32 {
		return nil, cni.Invalid(data, "ipam.priority", "want 0 (the kernel's default) or a route's metric, up to 4294967295")
	}
	if !out.V4 && !out.V6 && !out.AcceptRA {
		return nil, cni.Invalid(data, "ipam.dhcp4", "no address is requested: set dhcp4, dhcp6 or acceptRA to true")
	}
	if out.Request, err = requests(data, c.IPAM); err != nil {
		return nil, err
	}
	if out.Provide, err = provisions(data, c.IPAM, cniArgs); err != nil {
		return nil, err
	}
	out.Routes, err = routes(data, c.IPAM.Routes)
	return out, err
}

// requests returns the options to request: the listed ones, then routers and subnet mask unless an entry sets
// skipDefault.
func requests(data []byte, c *dhcpConf) (list []uint8, err error) {
	skip := false
	seen := map[uint8]bool{}
	add := func(code uint8) {
		if !seen[code] {
			list, seen[code] = append(list, code), true
		}
	}
	for i, r := range c.Request {
		skip = skip || r.SkipDefault
		if r.Option == "" {
			continue
		}
		code, ok := r.Option.code()
		if !ok {
			return nil, cni.Invalid(data, fmt.Sprintf("ipam.request[%d].option", i), wantOption)
		}
		add(code)
	}
	if !skip {
		add(OptRouters)
		add(OptSubnetMask)
	}
	return list, nil
}

// provisions returns the options to send. A value in CNI_ARGS takes precedence. Options without a value are not sent.
func provisions(data []byte, c *dhcpConf, cniArgs string) (list []DHCPOption, err error) {
	args, err := cni.ParseArgs(cniArgs)
	if err != nil {
		return nil, err
	}
	for i, p := range c.Provide {
		key := fmt.Sprintf("ipam.provide[%d]", i)
		code, ok := p.Option.code()
		if !ok {
			return nil, cni.Invalid(data, key+".option", wantOption)
		}
		if reservedOption(code) {
			return nil, cni.Invalid(data, key+".option", "only the DHCP client itself may set this option: remove it")
		}
		value := p.Value
		if v, ok := args.Get(p.FromArg); ok && p.FromArg != "" {
			value = v
		}
		if len(value) > 255 {
			return nil, cni.Invalid(data, key, "its value is too long: want at most 255 bytes")
		}
		if value != "" {
			list = append(list, DHCPOption{code, []byte(value)})
		}
	}
	return list, nil
}

// WantsDNS reports whether the result contains DNS settings: the configuration must request one of their options.
func (c *DHCPConf) WantsDNS() bool {
	for _, code := range c.Request {
		if code == OptNameServers || code == OptDomainName || code == OptDomainSearch {
			return true
		}
	}
	return false
}
