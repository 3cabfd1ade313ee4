package podnet

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// NetworkStatus is an element of the annotation network-status, as the Network
// Plumbing Working Group has it.
type NetworkStatus struct {
	Name      string      `json:"name"` // with the namespace that it was asked for with
	Interface string      `json:"interface,omitempty"`
	IPs       []string    `json:"ips,omitempty"`
	MAC       string      `json:"mac,omitempty"`
	MTU       int         `json:"mtu,omitempty"` // bytes
	Default   bool        `json:"default,omitempty"`
	DNS       cni.DNS     `json:"dns"`
	Device    *DeviceInfo `json:"device-info,omitempty"`
	Gateway   []string    `json:"gateway,omitempty"` // of the default routes
}

// DeviceInfo tells a pod about its device, by version 1.1.0 of the working group's
// specification of device information.
type DeviceInfo struct {
	Type    string     `json:"type"`
	Version string     `json:"version"`
	PCI     *DevicePCI `json:"pci,omitempty"`
}

// DevicePCI is a device on the PCI bus.
type DevicePCI struct {
	Address string `json:"pci-address"`
}

// NetworkStatus is what the pod has as the annotation k8s.v1.cni.cncf.io/network-status
// tells it.
func (s *PodStatus) NetworkStatus() []NetworkStatus {
	out := []NetworkStatus{} // not null in JSON
	for i := range s.Attachments {
		out = append(out, s.Attachments[i].NetworkStatus())
	}
	return out
}

// StatusAnnotation is NetworkStatus as the annotation's value.
func (s *PodStatus) StatusAnnotation() (string, error) {
	raw, err := json.MarshalIndent(s.NetworkStatus(), "", "    ")
	if err != nil {
		return "", fmt.Errorf("network status of pod %s: %w", s.ID, err)
	}
	return string(raw), nil
}

// NetworkStatus is the attachment's element of the annotation.
func (a *Attachment) NetworkStatus() NetworkStatus {
	n := NetworkStatus{Name: strings.TrimPrefix(a.Namespace+"/"+a.Network, "/"), Interface: a.IfName, Default: a.Default}
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

// appendGateway adds the gateway of a default route, which may be the address's own.
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

// pci is the device of a PCI address, nil if it is none.
func pci(address string) *DeviceInfo {
	if strings.Count(address, ":") != 2 || !strings.Contains(address, ".") {
		return nil
	}
	return &DeviceInfo{Type: "pci", Version: "1.1.0", PCI: &DevicePCI{address}}
}
