package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/cluster"
)

// Setting is a key that the environment, or a flag of the command, may give.
type Setting struct {
	Key, About string
	set        func(*Config, string) error
}

// prefix is what the names of all variables begin with.
const prefix = "FAIRLEAD_AGENT_"

// Unknown are the names of variables in an environment ("NAME=VALUE") that look like
// settings and are none: a wrong letter, and the agent would go by something else. Those
// that Kubernetes makes for a service of the agent's name are left out.
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

// Variable is its name in the environment.
func (s Setting) Variable() string {
	return prefix + strings.ToUpper(strings.ReplaceAll(s.Flag(), "-", "_"))
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
		{"node", "this node's name in the cluster", text(func(c *Config) *string { return &c.Node })},
		{"interface", "the link by which it reaches others", text(func(c *Config) *string { return &c.Interface })},
		{"addresses", "by which others reach it, with commas between", setAddresses},
		{"store.file", "the file of a cluster of one host", text(func(c *Config) *string { return &c.Store.File })},
		{"store.etcd.endpoints", "its members, with commas between", func(c *Config, v string) error { c.Store.Etcd.Endpoints = list(v); return nil }},
		{"store.etcd.prefix", "of all keys in etcd", text(func(c *Config) *string { return &c.Store.Etcd.Prefix })},
		{"store.etcd.caCert", "authorities that check its certificate", text(func(c *Config) *string { return &c.Store.Etcd.CACert })},
		{"store.etcd.cert", "this node's certificate", text(func(c *Config) *string { return &c.Store.Etcd.Cert })},
		{"store.etcd.key", "the certificate's key", text(func(c *Config) *string { return &c.Store.Etcd.Key })},
		{"store.etcd.username", "etcd's user", text(func(c *Config) *string { return &c.Store.Etcd.Username })},
		{"store.etcd.passwordFile", "holds the user's password", text(func(c *Config) *string { return &c.Store.Etcd.PasswordFile })},
		{"network", "the default one, JSON, where there is none yet", setNetwork},
		{"networkFile", "the same in flannel's form (net-conf.json)", text(func(c *Config) *string { return &c.NetworkFile })},
		{"flannel.subnetFile", "written for the plugin flannel", text(func(c *Config) *string { return &c.Flannel.SubnetFile })},
		{"flannel.prefix", "of its keys in etcd, to join its nodes", text(func(c *Config) *string { return &c.Flannel.Prefix })},
		{"listen", "where metrics and readiness are served", text(func(c *Config) *string { return &c.Listen })},
		{"grace", "a removed node's blocks stay reserved so long", func(c *Config, v string) error { return c.Grace.UnmarshalText([]byte(v)) }},
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
	c.Network = &cluster.Network{}
	return Parse("", []byte(v), c.Network)
}

func (c *Config) environment(getenv func(string) string) error {
	for _, s := range Settings() {
		if v := getenv(s.Variable()); v != "" {
			if err := s.Set(c, v); err != nil {
				return fmt.Errorf("--%s, or %s in the environment: %w", s.Flag(), s.Variable(), err)
			}
		}
	}
	return nil
}
