// Package manifest reads what a pod's networks need from a manifest of Kubernetes.
package manifest

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/yamlerr"
	"github.com/fairlead/fairlead/podnet"
)

// manifest is the part of a pod's manifest that concerns its networks.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name        string            `yaml:"name"`
		Namespace   string            `yaml:"namespace"`
		UID         string            `yaml:"uid"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		HostNetwork    bool        `yaml:"hostNetwork"`
		Containers     []container `yaml:"containers"`
		InitContainers []container `yaml:"initContainers"`
		DNSConfig      struct {
			Nameservers []string `yaml:"nameservers"`
			Searches    []string `yaml:"searches"`
			Options     []struct {
				Name  string  `yaml:"name"`
				Value *string `yaml:"value"`
			} `yaml:"options"`
		} `yaml:"dnsConfig"`
	} `yaml:"spec"`
}

type container struct {
	Ports []struct {
		HostPort      int    `yaml:"hostPort"`
		ContainerPort int    `yaml:"containerPort"`
		Protocol      string `yaml:"protocol"`
		HostIP        string `yaml:"hostIP"`
	} `yaml:"ports"`
}

// Parse reads the manifest of a pod, YAML or JSON. It returns a pod with the names, host ports and DNS settings of the
// manifest, and the annotations.
func Parse(raw []byte) (p *podnet.Pod, annotations map[string]string, err error) {
	var m manifest
	if err := yaml.Unmarshal(raw, &m); err != nil {
		return nil, nil, yamlerr.Explain("", raw, err)
	}
	switch {
	case m.Kind != "Pod":
		return nil, nil, fmt.Errorf("kind is %q: want Pod", m.Kind)
	case m.Spec.HostNetwork:
		return nil, nil, errors.New("hostNetwork is true: the pod uses the host's network, so there is nothing to set up")
	}
	p = &podnet.Pod{}
	p.Name, p.Namespace, p.UID = m.Metadata.Name, m.Metadata.Namespace, m.Metadata.UID
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	first := podnet.Network{DNS: m.dns()}
	for _, c := range append(m.Spec.InitContainers, m.Spec.Containers...) {
		for _, port := range c.Ports {
			first.Ports = append(first.Ports, podnet.PortMapping(port))
		}
	}
	p.Networks = []podnet.Network{first}
	return p, m.Metadata.Annotations, nil
}

func (m *manifest) dns() *cni.DNS {
	d := &cni.DNS{Nameservers: m.Spec.DNSConfig.Nameservers, Search: m.Spec.DNSConfig.Searches}
	for _, o := range m.Spec.DNSConfig.Options {
		word := o.Name
		if o.Value != nil {
			word += ":" + *o.Value
		}
		d.Options = append(d.Options, word)
	}
	if d.IsZero() {
		return nil
	}
	return d
}
