package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/podnet"
)

// manifest is what networks need to know of a pod of Kubernetes.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name        string            `yaml:"name"`
		Namespace   string            `yaml:"namespace"`
		UID         string            `yaml:"uid"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec struct {
		HostNetwork    bool                `yaml:"hostNetwork"`
		Containers     []manifestContainer `yaml:"containers"`
		InitContainers []manifestContainer `yaml:"initContainers"`
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

type manifestContainer struct {
	Ports []struct {
		HostPort      int    `yaml:"hostPort"`
		ContainerPort int    `yaml:"containerPort"`
		Protocol      string `yaml:"protocol"`
		HostIP        string `yaml:"hostIP"`
	} `yaml:"ports"`
}

// readManifest takes a pod's wishes from a file, "-" being standard input.
func readManifest(file string, p *podnet.Pod, annotations map[string]string) error {
	raw, err := fileOrInput(file)
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	if err := parseManifest(raw, p, annotations); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// fileOrInput reads a file, of which "-" is standard input.
func fileOrInput(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}

func parseManifest(raw []byte, p *podnet.Pod, annotations map[string]string) error {
	var m manifest
	if err := yaml.Unmarshal(raw, &m); err != nil {
		return err
	}
	switch {
	case m.Kind != "Pod":
		return fmt.Errorf("its kind is %q, not Pod", m.Kind)
	case m.Spec.HostNetwork:
		return errors.New("the pod has hostNetwork: it uses the host's network, and there is nothing to set up")
	}
	p.Name, p.Namespace, p.UID = m.Metadata.Name, m.Metadata.Namespace, m.Metadata.UID
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	maps.Copy(annotations, m.Metadata.Annotations)
	first := podnet.Network{DNS: m.dns()}
	for _, c := range append(m.Spec.InitContainers, m.Spec.Containers...) {
		for _, port := range c.Ports {
			first.Ports = append(first.Ports, podnet.PortMapping(port))
		}
	}
	p.Networks = []podnet.Network{first}
	return nil
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
