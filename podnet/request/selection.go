package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// selection is an element of the networks annotation in its JSON form.
type selection struct {
	Name             string        `json:"name"`
	Namespace        string        `json:"namespace"`
	Interface        string        `json:"interface"`
	InterfaceRequest string        `json:"interfaceRequest"` // an older name of interface
	IPs              []string      `json:"ips"`
	MAC              string        `json:"mac"`
	InfinibandGUID   string        `json:"infiniband-guid"`
	DeviceID         string        `json:"deviceID"`
	DefaultRoute     []netip.Addr  `json:"default-route"`
	Bandwidth        *Bandwidth    `json:"bandwidth"`
	PortMappings     []PortMapping `json:"portMappings"`
	Args             arguments     `json:"cni-args"`
}

// arguments are the values of cni-args. Their numbers are json.Numbers, because a float64 would change large ones.
type arguments map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (a *arguments) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode((*map[string]any)(a))
}

// ParseNetworks parses a selection of networks in either form of the Network Plumbing Working Group's standard. The
// forms are a comma-separated list of "[NAMESPACE/]NAME[@INTERFACE]", and a JSON list of objects. A name without a
// namespace gets the given one, which is the pod's. An empty text selects no network.
func ParseNetworks(text, namespace string) ([]Network, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return nil, nil
	case text[0] == '[':
		return parseSelections(text, namespace)
	case text[0] == '{':
		return nil, errors.New("want a list of objects, [{...}], or names separated by commas")
	}
	var out []Network
	for part := range strings.SplitSeq(text, ",") {
		n, err := parseName(strings.TrimSpace(part), namespace)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// parseName parses the short form of one network. As for Multus, spaces around its parts mean nothing.
func parseName(text, namespace string) (Network, error) {
	name, ifName, at := strings.Cut(text, "@")
	name, ifName = strings.TrimSpace(name), strings.TrimSpace(ifName)
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		namespace, name = strings.TrimSpace(ns), strings.TrimSpace(rest)
		if cni.ValidateNetworkName(namespace) != nil {
			return Network{}, fmt.Errorf("%q: want a namespace before the slash", text)
		}
	}
	if at && (cni.ValidateInterfaceName(ifName) != nil || strings.Contains(ifName, "@")) { // Multus allows one @
		return Network{}, fmt.Errorf("%q: want the name of an interface after the @, at most 15 letters, without another @", text)
	}
	if err := cni.ValidateNetworkName(name); err != nil {
		return Network{}, fmt.Errorf("%q: want [NAMESPACE/]NAME[@INTERFACE]: %w", text, err)
	}
	return Network{Name: name, Namespace: namespace, IfName: ifName}, nil
}

func parseSelections(text, namespace string) ([]Network, error) {
	var list []selection
	if err := cni.Decode([]byte(text), &list); err != nil {
		return nil, err
	}
	var out []Network
	for i, s := range list {
		n, err := s.network(namespace)
		if err == nil {
			err = n.validate(1)
		}
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out = append(out, n)
	}
	return out, nil
}

func (s *selection) network(namespace string) (Network, error) {
	if err := cni.ValidateNetworkName(s.Name); err != nil {
		return Network{}, err
	}
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	if s.Interface == "" {
		s.Interface = s.InterfaceRequest
	}
	for i, gw := range s.DefaultRoute {
		s.DefaultRoute[i] = gw.Unmap()
	}
	return Network{
		Name: s.Name, Namespace: namespace, IfName: s.Interface, IPs: s.IPs, MAC: s.MAC, InfinibandGUID: s.InfinibandGUID, DeviceID: s.DeviceID,
		DefaultRoute: s.DefaultRoute, Bandwidth: s.Bandwidth, Ports: s.PortMappings, Args: s.Args,
	}, nil
}
