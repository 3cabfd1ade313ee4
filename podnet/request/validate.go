package request

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/hwaddr"
)

// maxNetworks is the largest number of networks of a pod. Whoever writes annotations could otherwise exhaust the memory of
// a node: the configuration of each network may have 1 MiB, and is kept until all are attached.
const maxNetworks = 100

// Validate checks a pod before any change. The error contains every problem, each with its field.
func (p *Pod) Validate() error {
	if n := len(p.Networks); n > maxNetworks {
		return cni.Errorf(cni.CodeInvalidEnvironment, "the pod has %d networks: want at most %d", n, maxNetworks)
	}
	errs := []error{cni.ValidateContainerID(p.ID)}
	if p.Netns == "" {
		errs = append(errs, cni.Errorf(cni.CodeInvalidEnvironment, "pod %s has no network namespace", p.ID))
	}
	for _, kv := range append(p.KubernetesArgs(), p.Args...) {
		errs = append(errs, validArg(kv))
	}
	names, gateways := map[string]bool{"lo": true}, map[bool]bool{}
	for i := range p.Networks {
		name := p.Networks[i].InterfaceName(i)
		if names[name] {
			errs = append(errs, fmt.Errorf("networks[%d]: the interface name %s is taken", i, name))
		}
		names[name] = true
		errs = append(errs, At(i, p.Networks[i].validate(i)), At(i, p.Networks[i].validGateways(gateways)))
	}
	return errors.Join(errs...)
}

// At adds the position of a network to an error.
func At(i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("networks[%d]: %w", i, err)
}

// validArg rejects arguments that would be ambiguous in CNI_ARGS, and keys that other plugins than ours may refuse.
func validArg(kv [2]string) error {
	pairs, err := cni.ParseArgs(kv[0] + "=" + kv[1])
	if err != nil || len(pairs) != 1 || pairs[0].Key != kv[0] || strings.Trim(kv[0], argKey) != "" {
		return cni.Errorf(cni.CodeInvalidEnvironment, "CNI_ARGS: invalid argument %q=%q: want a key of letters, digits, '_', '-' and '.', and a value without ';', '=' and line breaks", kv[0], kv[1])
	}
	return nil
}

// argKey are the characters of a key in CNI_ARGS.
const argKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

// DefaultIfNamePrefix is the prefix of the name of the first network's interface.
const DefaultIfNamePrefix = "eth"

// InterfaceName returns the interface name of the pod's network at a position.
func (n *Network) InterfaceName(i int) string {
	switch {
	case n.IfName != "":
		return n.IfName
	case i == 0:
		return DefaultIfNamePrefix + "0"
	}
	return "net" + strconv.Itoa(i)
}

func (n *Network) validate(i int) error {
	errs := []error{cni.ValidateInterfaceName(n.InterfaceName(i))}
	if !utf8.ValidString(n.IfName) { // the kernel would accept it, but JSON could not represent it
		errs = append(errs, cni.Errorf(cni.CodeInvalidEnvironment, "interface name %q is not UTF-8", n.IfName))
	}
	if n.Name != "" {
		errs = append(errs, cni.ValidateNetworkName(n.Name))
	}
	for _, p := range n.hostPorts() {
		errs = append(errs, p.validate())
	}
	for _, ip := range n.IPs {
		errs = append(errs, validIP(ip))
	}
	if n.MAC != "" {
		if mac, err := hwaddr.Parse(n.MAC); err != nil || mac[0]&1 != 0 {
			errs = append(errs, fmt.Errorf("mac %q: want a unicast hardware address like 02:00:00:00:00:01", n.MAC))
		}
	}
	return errors.Join(errs...)
}

func validIP(s string) error {
	if _, err := cni.ParseAddress(s); err != nil {
		return fmt.Errorf("address %q: want one like 10.1.0.5, 10.1.0.5/24 or fd00::5", s)
	}
	return nil
}

// validGateways checks the gateways of a network's default route. It adds their families to those that the pod has.
func (n *Network) validGateways(has map[bool]bool) error {
	for _, gw := range n.DefaultRoute {
		if !gw.IsValid() || has[gw.Is4()] {
			return errors.New("default route: want at most one gateway of each family in all networks of the pod")
		}
		if gw.Zone() != "" {
			return fmt.Errorf("default route: gateway %s: want an address without a zone", gw)
		}
		has[gw.Is4()] = true
	}
	return nil
}

func (p PortMapping) validate() error {
	if p.HostPort < 1 || p.HostPort > 65535 || p.ContainerPort < 1 || p.ContainerPort > 65535 {
		return fmt.Errorf("port %d to %d: ports are 1 to 65535", p.HostPort, p.ContainerPort)
	}
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol) {
		return fmt.Errorf("port %d: protocol %q: want tcp, udp or sctp", p.HostPort, p.Protocol)
	}
	if p.HostIP != "" {
		if a, err := netip.ParseAddr(p.HostIP); err != nil || a.Zone() != "" {
			return fmt.Errorf("port %d: host address %q: want an IP address", p.HostPort, p.HostIP)
		}
	}
	return nil
}

// KubernetesArgs returns the CNI_ARGS that plugins expect from kubelet, with IgnoreUnknown for the other plugins.
func (p *Pod) KubernetesArgs() [][2]string {
	if p.Namespace == "" && p.Name == "" && p.UID == "" {
		return nil
	}
	return [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", p.ID}, {"K8S_POD_UID", p.UID},
	}
}
