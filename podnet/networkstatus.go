package podnet

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// NetworkStatus is an element of the annotation network-status, in the Network Plumbing Working Group's format.
type NetworkStatus struct {
	Name      string      `json:"name"` // including the requested namespace
	Interface string      `json:"interface,omitempty"`
	IPs       []string    `json:"ips,omitempty"`
	MAC       string      `json:"mac,omitempty"`
	MTU       int         `json:"mtu,omitempty"` // in bytes
	Default   bool        `json:"default,omitempty"`
	DNS       cni.DNS     `json:"dns"`
	Device    *DeviceInfo `json:"device-info,omitempty"`
	Gateway   []string    `json:"gateway,omitempty"` // gateways of the default routes

	// Isolated is the isolated network of Fairlead's cluster that the addresses are in. The working group's format does not
	// have it.
	Isolated string `json:"fairlead.io/isolated-network,omitempty"`
}

// DeviceInfo describes a pod's device, in version 1.1.0 of the working group's device information specification.
type DeviceInfo struct {
	Type    string     `json:"type"`
	Version string     `json:"version"`
	PCI     *DevicePCI `json:"pci,omitempty"`
}

// DevicePCI is a PCI device.
type DevicePCI struct {
	Address string `json:"pci-address"`
}

// NetworkStatus returns the pod's attachments as elements of the annotation k8s.v1.cni.cncf.io/network-status.
func (s *PodStatus) NetworkStatus() []NetworkStatus {
	out := []NetworkStatus{} // so that JSON has no null
	for i := range s.Attachments {
		out = append(out, s.Attachments[i].NetworkStatus())
	}
	return out
}

// StatusAnnotation returns NetworkStatus as the annotation's value.
func (s *PodStatus) StatusAnnotation() (string, error) {
	raw, err := json.MarshalIndent(s.NetworkStatus(), "", "    ")
	if err != nil {
		return "", fmt.Errorf("network status of pod %s: %w", s.ID, err)
	}
	return string(raw), nil
}

// NetworkStatus returns the attachment's element of the annotation.
func (a *Attachment) NetworkStatus() NetworkStatus {
	n := NetworkStatus{Name: strings.TrimPrefix(a.Namespace+"/"+a.Network, "/"), Interface: a.IfName, Default: a.Default, Isolated: a.Isolated}
	for _, ip := range a.IPs() {
		n.IPs = append(n.IPs, ip.String())
	}
	if a.Result == nil {
		return n
	}
	n.DNS = a.Result.DNS
	for _, r := range a.Result.Routes {
		if r.Dst.Bits() == 0 && r.Dst.IsValid() {
			n.Gateway = a.appendGateway(n.Gateway, r)
		}
	}
	for _, i := range a.Result.Interfaces {
		if i.Name == a.IfName && i.Sandbox != "" {
			n.MAC, n.MTU, n.Device = i.Mac, i.MTU, pci(i.PciID)
		}
	}
	if n.Device == nil {
		n.Device = pci(a.DeviceID)
	}
	return n
}

// appendGateway appends the gateway of a default route. A route without one uses the gateway of the address.
func (a *Attachment) appendGateway(list []string, r cni.Route) []string {
	if r.GW.IsValid() {
		return append(list, r.GW.String())
	}
	for _, ip := range a.Result.IPs {
		if ip.Gateway.IsValid() && ip.Gateway.Is4() == r.Dst.Addr().Is4() {
			return append(list, ip.Gateway.String())
		}
	}
	return list
}

// pci returns the device with a PCI address, or nil if the address is not a PCI address.
func pci(address string) *DeviceInfo {
	if strings.Count(address, ":") != 2 || !strings.Contains(address, ".") {
		return nil
	}
	return &DeviceInfo{Type: "pci", Version: "1.1.0", PCI: &DevicePCI{address}}
}
