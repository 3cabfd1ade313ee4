package ipam

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/cni"
)

// DefaultDHCPSocket is where the DHCP daemon listens.
const DefaultDHCPSocket = "/run/cni/dhcp.sock"

// maxSocketPath is what struct sockaddr_un holds, unix(7), less its last zero.
const maxSocketPath = 107

// DHCPConf is a network whose addresses come by DHCP, for one attachment.
type DHCPConf struct {
	Network string
	Version string // cniVersion
	Socket  string // the daemon's

	V4       bool // an IPv4 address by DHCPv4
	V6       bool // an IPv6 address by DHCPv6
	AcceptRA bool // the default route, and addresses, from routers' advertisements

	Request  []uint8 // options that are asked for, in order
	Provide  []DHCPOption
	Priority int         // metric of the routes that the network gives
	Routes   []cni.Route // besides those that it gives
}

// DHCPOption is an option of DHCPv4 with what it says.
type DHCPOption struct {
	Code  uint8
	Value []byte
}

// The options that are asked for by default, and those of name service.
const (
	OptSubnetMask   = 1
	OptRouters      = 3
	OptNameServers  = 6
	OptDomainName   = 15
	OptClientID     = 61
	OptDomainSearch = 119
)

// optionNames are the names by which a configuration may call options.
func optionNames() map[string]uint8 {
	return map[string]uint8{
		"subnet-mask": OptSubnetMask, "routers": OptRouters, "domain-name-servers": OptNameServers, "host-name": 12,
		"domain-name": OptDomainName, "interface-mtu": 26, "broadcast-address": 28, "static-routes": 33, "ntp-servers": 42,
		"vendor-class-identifier": 60, "dhcp-client-identifier": OptClientID, "user-class": 77, "domain-search": OptDomainSearch,
		"classless-static-routes": 121,
	}
}

// clientsOwn are the options that only the client itself may say: padding, the
// address, the type of a message, the server, the list of requests, the end.
func clientsOwn(code uint8) bool {
	switch code {
	case 0, 50, 53, 54, 55, 255:
		return true
	}
	return false
}

// optionKey is an option as a configuration names it, "" if not at all.
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

// ParseDHCP reads a configuration for an attachment with these CNI_ARGS.
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
	if out.Priority < 0 {
		return nil, cni.Invalid(data, "ipam.priority", "want 0 (the kernel's default) or a route's metric")
	}
	if !out.V4 && !out.V6 && !out.AcceptRA {
		return nil, cni.Invalid(data, "ipam.dhcp4", "asks for no address at all: want true, or dhcp6 or acceptRA to be true")
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

// requests are the options to ask for: those listed, then routers and subnet
// mask unless an entry says skipDefault.
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

// provisions are the options to send. A value that CNI_ARGS has wins; an
// option without any value is not sent.
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
		if clientsOwn(code) {
			return nil, cni.Invalid(data, key+".option", "is the DHCP client's own to send")
		}
		value := p.Value
		if v, ok := args.Get(p.FromArg); ok && p.FromArg != "" {
			value = v
		}
		if len(value) > 255 {
			return nil, cni.Invalid(data, key, "its value is longer than 255 bytes, which an option holds at most")
		}
		if value != "" {
			list = append(list, DHCPOption{code, []byte(value)})
		}
	}
	return list, nil
}

// WantsDNS tells whether the result is to name name servers: it does when the
// configuration asks for one of their options.
func (c *DHCPConf) WantsDNS() bool {
	for _, code := range c.Request {
		if code == OptNameServers || code == OptDomainName || code == OptDomainSearch {
			return true
		}
	}
	return false
}
