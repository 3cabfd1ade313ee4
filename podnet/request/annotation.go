package request

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cni"
)

// These annotations of a pod select its networks. The Network Plumbing Working Group's annotations are defined in its
// Kubernetes Network Custom Resource Definition De-facto Standard, version 1.3.
const (
	AnnotationNetworks       = "k8s.v1.cni.cncf.io/networks"
	AnnotationStatus         = "k8s.v1.cni.cncf.io/network-status"
	AnnotationDefaultNetwork = "v1.multus-cni.io/default-network"
	AnnotationIngress        = "kubernetes.io/ingress-bandwidth"
	AnnotationEgress         = "kubernetes.io/egress-bandwidth"
)

// Prefix is the prefix of Fairlead's own annotations. An annotation about a network applies to the default network.
// With "." and an interface name appended to the key, it applies to that interface's network.
const Prefix = "fairlead.io/"

// own returns the keys after Prefix, and how each changes a network. A nil function is for keys about the whole pod.
func own() map[string]func(n *Network, value string) error {
	return map[string]func(*Network, string) error{
		"default-network":   nil,
		"networks":          nil,
		"labels":            nil,
		"ips":               func(n *Network, v string) error { n.IPs = words(v); return nil },
		"mac":               func(n *Network, v string) error { n.MAC = v; return nil },
		"ports":             (*Network).setPorts,
		"aliases":           func(n *Network, v string) error { n.Aliases = words(v); return nil },
		"ingress-bandwidth": func(n *Network, v string) error { return n.setRate(v, true) },
		"egress-bandwidth":  func(n *Network, v string) error { return n.setRate(v, false) },
	}
}

// Annotate applies the pod's annotations to the pod. It ignores unknown annotations. An annotation may replace the
// first of the pod's Networks, and may append more. The error contains every problem.
func (p *Pod) Annotate(annotations map[string]string) error {
	if len(p.Networks) == 0 {
		p.Networks = []Network{{}}
	}
	for key, value := range annotations {
		if !utf8.ValidString(key) || !utf8.ValidString(value) { // Kubernetes allows only UTF-8, and a note could not store anything else
			return fmt.Errorf("annotation %q: %q is not UTF-8", key, value)
		}
	}
	var errs []error
	for _, step := range []func(map[string]string) error{p.annotateDefault, p.annotateNetworks, p.annotateOwn} {
		errs = append(errs, step(annotations))
	}
	return errors.Join(errs...)
}

// defaultNamespace is the namespace of a default network that AnnotationDefaultNetwork names without one, as for Multus.
const defaultNamespace = "kube-system"

func (p *Pod) annotateDefault(a map[string]string) error {
	first := &p.Networks[0]
	var errs []error
	for key, ingress := range map[string]bool{AnnotationIngress: true, AnnotationEgress: false} {
		if v, ok := a[key]; ok {
			errs = append(errs, annotation(key, first.setRate(v, ingress)))
		}
	}
	own := Prefix + "default-network"
	if _, both := a[own]; both {
		if _, both = a[AnnotationDefaultNetwork]; both {
			return errors.Join(append(errs, annotation(own, fmt.Errorf("%s selects the default network, too: want one of the two", AnnotationDefaultNetwork)))...)
		}
	}
	for key, namespace := range map[string]string{AnnotationDefaultNetwork: defaultNamespace, own: ""} {
		v, ok := a[key]
		if !ok {
			continue
		}
		list, err := ParseNetworks(v, namespace)
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("%q: want one network", v)
		}
		if err != nil {
			errs = append(errs, annotation(key, err))
			continue
		}
		first.become(list[0])
	}
	return errors.Join(errs...)
}

// become replaces the network by the one that an annotation selects, and keeps the other settings.
func (n *Network) become(o Network) {
	o.Ports = append(slices.Clone(n.Ports), o.Ports...)
	if o.Bandwidth == nil {
		o.Bandwidth = n.Bandwidth
	}
	if o.IfName == "" {
		o.IfName = n.IfName
	}
	o.DNS, o.CgroupPath, o.Aliases, o.IPRanges = n.DNS, n.CgroupPath, n.Aliases, n.IPRanges
	if len(o.IPs) == 0 {
		o.IPs = n.IPs
	}
	if o.MAC == "" {
		o.MAC = n.MAC
	}
	*n = o
}

func (p *Pod) annotateNetworks(a map[string]string) error {
	var errs []error
	for _, key := range []string{AnnotationNetworks, Prefix + "networks"} {
		v, ok := a[key]
		if !ok {
			continue
		}
		namespace := p.Namespace
		if key != AnnotationNetworks { // networks of the configuration directory have no namespace
			namespace = ""
		}
		list, err := ParseNetworks(v, namespace)
		errs = append(errs, annotation(key, err))
		p.Networks = append(p.Networks, list...)
	}
	return errors.Join(errs...)
}

// annotateOwn applies Fairlead's own annotations about single networks.
func (p *Pod) annotateOwn(a map[string]string) error {
	known := own()
	var errs []error
	for _, key := range sortedKeys(a) {
		name, ok := strings.CutPrefix(key, Prefix)
		if !ok {
			continue
		}
		what, ifName, named := strings.Cut(name, ".")
		set, ok := known[what]
		switch {
		case !ok || named && set == nil:
			errs = append(errs, annotation(key, fmt.Errorf("there is no such key: want one of %s", strings.Join(sortedKeys(known), ", "))))
		case what == "labels": // fairlead-policy reads them, on any of the networks
			for i := range p.Networks {
				p.Networks[i].Labels = a[key]
			}
		case set == nil:
		default:
			errs = append(errs, annotation(key, p.setOwn(ifName, named, a[key], set)))
		}
	}
	return errors.Join(errs...)
}

func (p *Pod) setOwn(ifName string, named bool, value string, set func(*Network, string) error) error {
	if !named {
		return set(&p.Networks[0], value)
	}
	for i := range p.Networks {
		if p.Networks[i].InterfaceName(i) == ifName {
			return set(&p.Networks[i], value)
		}
	}
	return fmt.Errorf("the pod has no interface %q", ifName)
}

func annotation(key string, err error) error {
	if err == nil {
		return nil
	}
	return cni.Errorf(cni.CodeInvalidEnvironment, "annotation %s: %w", key, err)
}

func (n *Network) setPorts(v string) error {
	for _, w := range words(v) {
		p, err := ParsePort(w)
		if err != nil {
			return err
		}
		n.Ports = append(n.Ports, p)
	}
	return nil
}

func (n *Network) setRate(v string, ingress bool) error {
	rate, err := ParseRate(v)
	if err != nil {
		return err
	}
	b := Bandwidth{}
	if n.Bandwidth != nil {
		b = *n.Bandwidth
	}
	if ingress {
		b.IngressRate = rate
	} else {
		b.EgressRate = rate
	}
	n.Bandwidth = &b
	return nil
}

// words splits a list at commas and white space.
func words(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
