package chain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// Tuning returns the plugin that sets sysctls of a container and attributes of its interface. DEL restores them.
func Tuning() plugin.Plugin {
	return plugin.Plugin{
		Name: "tuning", About: "sets sysctls of a container and attributes of its interface; DEL restores them", Chained: true,
		New: func() plugin.Config { return &tuning{allowlist: allowlistFile} },
	}
}

// allowlistFile holds one regular expression per line. If it exists, a sysctl must match one of them.
const allowlistFile = "/etc/cni/tuning/allowlist.conf"

type tuning struct {
	plugin.Conf
	settings
	DataDir *string `json:"dataDir"` // accepted for compatibility; the attachment's record has the old values

	allowlist string
	mac       string
	sysctls   []string // the keys in the order of the configuration, in which they are written
}

// settings may be in the configuration or in args.cni, which takes precedence.
type settings struct {
	Sysctl   map[string]string `json:"sysctl"`
	OwnMAC   string            `json:"mac"`
	MTU      int               `json:"mtu"`
	Promisc  bool              `json:"promisc"`
	AllMulti *bool             `json:"allmulti"`
	TxQLen   *int              `json:"txQLen"`
}

func (c *tuning) Validate(a *plugin.Attachment) (err error) {
	if c.mac, err = c.MAC(a, c.OwnMAC); err != nil {
		return err
	}
	keys := sysctlKeys(c.Raw)
	for i, key := range keys { // args.cni may repeat a key: it takes precedence
		if slices.Contains(keys[:i], key) {
			return cni.Invalid(c.Raw, "sysctl", fmt.Sprintf("%q occurs twice: want each key once", key))
		}
	}
	if len(c.Args.CNI) > 0 {
		if err := cni.Decode(c.Args.CNI, &c.settings); err != nil {
			return c.invalidArgs(err)
		}
	}
	if c.MTU < 0 || c.MTU > 65535 {
		return cni.Invalid(c.Raw, c.at("mtu"), "want 0 (unchanged) to 65535 bytes")
	}
	if c.TxQLen != nil && (*c.TxQLen < 0 || *c.TxQLen > math.MaxUint32) {
		return cni.Invalid(c.Raw, c.at("txQLen"), "want 0 to 4294967295 packets")
	}
	for key := range c.Sysctl {
		if _, problem := sysctlPath(key, ""); problem != "" {
			return cni.Invalid(c.Raw, c.at("sysctl"), fmt.Sprintf("%q: %s", key, problem))
		}
	}
	for _, key := range append(keys, sysctlKeys(c.Args.CNI)...) {
		if _, isSet := c.Sysctl[key]; isSet && !slices.Contains(c.sysctls, key) {
			c.sysctls = append(c.sysctls, key)
		}
	}
	return nil
}

// invalidArgs returns an error about args.cni with its place in the configuration.
func (c *tuning) invalidArgs(err error) error {
	e, ok := errors.AsType[*cni.ConfigError](err)
	if !ok {
		return fmt.Errorf("args.cni: %w", err)
	}
	return cni.Invalid(c.Raw, strings.TrimSuffix("args.cni."+e.Key, "."), e.Problem)
}

// at returns the place of a setting: args.cni, if it has the key.
func (c *tuning) at(key string) string {
	all, _ := rawjson.Members(c.Args.CNI) // valid JSON, or empty
	if slices.ContainsFunc(all, func(m rawjson.Member) bool { return strings.EqualFold(m.Key, key) }) {
		return "args.cni." + key
	}
	return key
}

// sysctlKeys returns the keys of the member sysctl in the order of the text.
func sysctlKeys(raw []byte) (keys []string) {
	all, _ := rawjson.Members(raw) // valid JSON, because it has been decoded, or empty
	for _, m := range all {
		if strings.EqualFold(m.Key, "sysctl") {
			list, _ := rawjson.Members(m.Raw)
			for _, k := range list {
				keys = append(keys, k.Key)
			}
		}
	}
	return keys
}

// allowed checks the sysctls against the host's allowlist, if it has one.
func (c *tuning) allowed(a *plugin.Attachment) error {
	if len(c.Sysctl) == 0 {
		return nil
	}
	raw, err := a.Facts.ReadFile(c.allowlist)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the list of allowed sysctls: %w", err)
	}
	var patterns []string
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" {
			patterns = append(patterns, line)
		}
	}
	for key := range c.Sysctl {
		ok := false
		for _, p := range patterns {
			re, err := regexp.Compile(p)
			if err != nil {
				return fmt.Errorf("%s: %q is not a regular expression: %w", c.allowlist, p, err)
			}
			ok = ok || re.MatchString(key)
		}
		if !ok {
			return cni.Invalid(c.Raw, c.at("sysctl"), fmt.Sprintf("%q is not allowed on this host: %s allows %s", key, c.allowlist, strings.Join(patterns, ", ")))
		}
	}
	return nil
}

// sysctlPath returns a key's file below /proc/sys. In a key with dots, a slash means a dot in an interface name, and
// the other way round; see sysctl(8).
func sysctlPath(key, ifname string) (path, problem string) {
	path = key
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		path = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, key)
	}
	switch {
	case !strings.HasPrefix(path, "net/"):
		return "", "want a key of the network namespace, which begins with net."
	case filepath.Clean(path) != path || strings.ContainsAny(path, "\x00\n "):
		return "", "want names separated by dots"
	}
	return strings.Replace(path, "IFNAME", ifname, 1), ""
}

// Ready reports a sysctl that the host does not allow.
func (c *tuning) Ready(_ context.Context, a *plugin.Attachment) error { return c.allowed(a) }

func (c *tuning) Addressed(a *plugin.Attachment, r *cni.Result) (list kernel.Objects, err error) {
	if err := c.allowed(a); err != nil {
		return nil, err
	}
	for _, key := range c.sysctls {
		path, _ := sysctlPath(key, a.IfName)
		s := &kernel.Sysctl{In: kernel.Container, Key: path, Value: c.Sysctl[key], NetnsOnly: true}
		// A key that can only be written has no previous value.
		if s.Previous, err = a.Facts.Sysctl(kernel.Container, path); err != nil && !errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("sysctl %s in the container: %w", key, err)
		}
		list = append(list, s)
	}
	set := kernel.LinkSettings{MAC: c.mac, MTU: c.MTU, AllMulti: c.AllMulti, TxQLen: c.TxQLen}
	if c.Promisc {
		set.Promisc = &c.Promisc
	}
	if set == (kernel.LinkSettings{}) {
		return list, nil
	}
	l, err := a.Facts.Link(kernel.Container, a.IfName)
	if err != nil {
		return nil, fmt.Errorf("in the container: %w", err)
	}
	own := ownInterface(a, r)
	six := func(ip cni.IP) bool {
		of := r.InterfaceOf(ip)
		return ip.Address.Addr().Is6() && (of == nil || of == own)
	}
	if c.MTU > 0 && c.MTU < kernel.MinIPv6MTU && slices.ContainsFunc(r.IPs, six) {
		return nil, cni.Invalid(c.Raw, c.at("mtu"), fmt.Sprintf("%s has an IPv6 address, which the kernel would remove: want at least %d bytes (RFC 8200)", a.IfName, kernel.MinIPv6MTU))
	}
	if own != nil && c.mac != "" {
		own.Mac = c.mac
	}
	return append(list, &kernel.LinkAttrs{Link: a.IfName, Set: set, Previous: set.CurrentOf(l)}), nil
}

// ownInterface returns the container's interface in a result, or nil. Some plugins do not say that it is in a container.
func ownInterface(a *plugin.Attachment, r *cni.Result) *cni.Interface {
	named := func(i cni.Interface) bool { return i.Name == a.IfName }
	i := slices.IndexFunc(r.Interfaces, func(i cni.Interface) bool { return named(i) && i.Sandbox != "" })
	if i < 0 {
		i = slices.IndexFunc(r.Interfaces, named)
	}
	if i < 0 {
		return nil
	}
	return &r.Interfaces[i]
}
