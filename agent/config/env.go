package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Setting is a key that the environment, or a flag of the command, may give.
type Setting struct {
	Key, About string
	set        func(*Config, string) error
}

// Variable is its name in the environment.
func (s Setting) Variable() string {
	return "FAIRLEAD_AGENT_" + strings.ToUpper(strings.ReplaceAll(s.Flag(), "-", "_"))
}

// Flag is its name on the command line.
func (s Setting) Flag() string {
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

// Set sets it.
func (s Setting) Set(c *Config, value string) error {
	if err := s.set(c, value); err != nil {
		return fmt.Errorf("%s: %w", s.Key, err)
	}
	return nil
}

// Settings are all of them, in the order of the file.
func Settings() []Setting {
	text := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, v string) error { *field(c) = v; return nil }
	}
	return []Setting{
		{"node", "this node's name in the cluster (default: the host's)", text(func(c *Config) *string { return &c.Node })},
		{"interface", "the link by which this node reaches others (default: the default route's)", text(func(c *Config) *string { return &c.Interface })},
		{"addresses", "the addresses by which others reach it, with commas between (default: the link's first of each family)", setAddresses},
		{"store.file", "the file of a cluster of one host", text(func(c *Config) *string { return &c.Store.File })},
		{"store.etcd.endpoints", "etcd's members, with commas between", func(c *Config, v string) error { c.Store.Etcd.Endpoints = list(v); return nil }},
		{"store.etcd.prefix", "of all keys in etcd", text(func(c *Config) *string { return &c.Store.Etcd.Prefix })},
		{"store.etcd.caCert", "file with the authorities that etcd's certificate is checked by", text(func(c *Config) *string { return &c.Store.Etcd.CACert })},
		{"store.etcd.cert", "file with this node's certificate", text(func(c *Config) *string { return &c.Store.Etcd.Cert })},
		{"store.etcd.key", "file with its key", text(func(c *Config) *string { return &c.Store.Etcd.Key })},
		{"store.etcd.username", "etcd's user", text(func(c *Config) *string { return &c.Store.Etcd.Username })},
		{"store.etcd.passwordFile", "file with the user's password", text(func(c *Config) *string { return &c.Store.Etcd.PasswordFile })},
		{"network", "the default network as JSON, for a cluster that has none yet", setNetwork},
		{"networkFile", "the same as a file of flannel's form (net-conf.json)", text(func(c *Config) *string { return &c.NetworkFile })},
		{"flannel.subnetFile", "write this node's subnet there for the plugin flannel", text(func(c *Config) *string { return &c.Flannel.SubnetFile })},
		{"flannel.prefix", "flannel's keys in etcd, for a cluster that switches node by node", text(func(c *Config) *string { return &c.Flannel.Prefix })},
		{"listen", "serve metrics and readiness at this address and port", text(func(c *Config) *string { return &c.Listen })},
		{"grace", "how long the blocks of a removed node stay reserved", func(c *Config, v string) error { return c.Grace.UnmarshalText([]byte(v)) }},
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
			return err
		}
		c.Addresses = append(c.Addresses, a)
	}
	return nil
}

func setNetwork(c *Config, v string) error {
	c.Network = nil
	return json.Unmarshal([]byte(v), &c.Network)
}

func (c *Config) environment(getenv func(string) string) error {
	for _, s := range Settings() {
		if v := getenv(s.Variable()); v != "" {
			if err := s.Set(c, v); err != nil {
				return fmt.Errorf("%s in the environment: %w", s.Variable(), err)
			}
		}
	}
	return nil
}
