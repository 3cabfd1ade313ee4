package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
)

// Setting is a key that can also be set in the environment or by a flag.
type Setting struct {
	Key, About string
	set        func(*Config, string) error // "" removes the value
}

// prefix is the prefix of the variables' names.
const prefix = "FAIRLEAD_AGENT_"

// Unknown returns the variables in an environment ("NAME=VALUE") that have the prefix but are not settings, so that a
// misspelled name is reported. It skips those that Kubernetes sets for a service with the agent's name.
func Unknown(environ []string) (names []string) {
	settings := Settings()
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || strings.Contains("_"+rest, "_SERVICE_") || strings.HasPrefix(rest, "PORT") {
			continue
		}
		if !slices.ContainsFunc(settings, func(s Setting) bool { return s.Variable() == name }) {
			names = append(names, name)
		}
	}
	return names
}

// Variable returns the setting's environment variable.
func (s Setting) Variable() string {
	return prefix + strings.ToUpper(strings.ReplaceAll(s.dashed(), "-", "_"))
}

// Flag returns its name on the command line. The flag of the key network has another name: --network is the name of a
// network in all other commands.
func (s Setting) Flag() string {
	if s.Key == "network" {
		return "network-config"
	}
	return s.dashed()
}

// dashed returns the key in the form of a flag.
func (s Setting) dashed() string {
	var b strings.Builder
	for _, c := range s.Key {
		switch {
		case c == '.':
			b.WriteByte('-')
		case c >= 'A' && c <= 'Z':
			b.WriteByte('-')
			b.WriteRune(c + 'a' - 'A')
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// SettingError reports a wrong value of a setting.
type SettingError struct {
	Setting Setting
	Value   string
	err     error
}

func (e *SettingError) Error() string { return e.Setting.Variable() + ": " + e.err.Error() }

// Unwrap returns the problem without the name of the setting.
func (e *SettingError) Unwrap() error { return e.err }

// Settings returns all settings, in the order of the file.
func Settings() []Setting {
	text := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, v string) error { *field(c) = v; return nil }
	}
	return []Setting{
		{"node", "Name of this node in the cluster (default: the host's name).", text(func(c *Config) *string { return &c.Node })},
		{"interface", "Link by which this node reaches other nodes (default: the link of the default route; of several, the one that the node used first).", text(func(c *Config) *string { return &c.Interface })},
		{"addresses", "Addresses by which other nodes reach this node, separated by commas, one for each family.", setAddresses},
		{"store.file", "File of the store of a cluster of one host.", text(func(c *Config) *string { return &c.Store.File })},
		{"store.etcd.endpoints", "URLs of the etcd members, separated by commas.", func(c *Config, v string) error { c.Store.Etcd.Endpoints = list(v); return nil }},
		{"store.etcd.prefix", "Prefix of all keys in etcd (default /fairlead/).", text(func(c *Config) *string { return &c.Store.Etcd.Prefix })},
		{"store.etcd.caCert", "PEM file with the authorities that etcd's certificate is verified with.", text(func(c *Config) *string { return &c.Store.Etcd.CACert })},
		{"store.etcd.cert", "PEM file with the client certificate for etcd.", text(func(c *Config) *string { return &c.Store.Etcd.Cert })},
		{"store.etcd.key", "PEM file with the key of the client certificate.", text(func(c *Config) *string { return &c.Store.Etcd.Key })},
		{"store.etcd.username", "User name in etcd.", text(func(c *Config) *string { return &c.Store.Etcd.Username })},
		{"store.etcd.passwordFile", "File with the password of the user in etcd.", text(func(c *Config) *string { return &c.Store.Etcd.PasswordFile })},
		{"store.kubernetes.kubeconfig", "Kubeconfig file of the cluster whose API is the store, or " + InCluster + ".", text(func(c *Config) *string { return &c.Store.Kubernetes.Kubeconfig })},
		{"store.kubernetes.namespace", "Namespace of the agents' Leases (default fairlead-system).", text(func(c *Config) *string { return &c.Store.Kubernetes.Namespace })},
		{"network", "Default network, in JSON; used if the cluster has none yet.", setNetwork},
		{"networkFile", "File with the default network in flannel's form (net-conf.json); used if the cluster has none yet.", text(func(c *Config) *string { return &c.NetworkFile })},
		{"flannel.subnetFile", "File to write for the plugin flannel, usually /run/flannel/subnet.env.", text(func(c *Config) *string { return &c.Flannel.SubnetFile })},
		{"flannel.prefix", "Prefix of flannel's keys in etcd, or of its annotations in Kubernetes; makes flannel's nodes peers of this node.", text(func(c *Config) *string { return &c.Flannel.Prefix })},
		{"podNetworks.enabled", "Whether Kubernetes pods may select several networks by annotations, true or false (default false).", boolean(func(c *Config) *bool { return &c.PodNetworks.Enabled })},
		{"podNetworks.kubelet", "The kubelet's pod-resources socket (default " + DefaultKubelet + ").", text(func(c *Config) *string { return &c.PodNetworks.Kubelet })},
		{"policy.enabled", "Whether the agent enforces network policies on this node, true or false (default false).", boolean(func(c *Config) *bool { return &c.Policy.Enabled })},
		{"policy.directory", "Directory with network policies in files, for hosts without Kubernetes.", text(func(c *Config) *string { return &c.Policy.Directory })},
		{"mountNamespace", "Mount namespace in which the network namespaces of isolated networks are mounted, such as /proc/1/ns/mnt (default: the agent's own).", text(func(c *Config) *string { return &c.MountNamespace })},
		{"sysctlDir", "Directory of the kernel's settings, if /proc/sys is read-only (default /proc/sys).", text(func(c *Config) *string { return &c.SysctlDir })},
		{"listen", "Address and port of the HTTP server for metrics, health and readiness (default: none).", text(func(c *Config) *string { return &c.Listen })},
		{"grace", "Time for which the blocks of a removed node stay reserved (default 5m).", setGrace},
	}
}

func list(v string) (out []string) {
	for p := range strings.SplitSeq(v, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func setAddresses(c *Config, v string) error {
	c.Addresses = nil
	for _, p := range list(v) {
		a, err := netip.ParseAddr(p)
		if err != nil {
			return fmt.Errorf("%q is not an address: want one like 192.0.2.11", p)
		}
		c.Addresses = append(c.Addresses, a)
	}
	return nil
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		if *field(c), err = strconv.ParseBool(v); err != nil && v != "" {
			return fmt.Errorf("%q: want true or false", v)
		}
		return nil
	}
}

func setGrace(c *Config, v string) error {
	c.Grace = 0
	if v == "" {
		return nil
	}
	return c.Grace.UnmarshalText([]byte(v))
}

func setNetwork(c *Config, v string) error {
	if v == "" {
		c.Network = nil
		return nil
	}
	c.Network = &cluster.Network{}
	return Parse("", []byte(v), c.Network)
}

func (c *Config) environment(getenv func(string) string) error {
	for _, s := range Settings() {
		if v := getenv(s.Variable()); v != "" {
			if err := s.set(c, v); err != nil {
				return invalid(&SettingError{s, v, err})
			}
		}
	}
	return nil
}
