// Package config reads the node agent's configuration: a file (see contrib/agent/agent.yaml), environment variables and
// flags.
package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// DefaultPath is the default path of the file.
const DefaultPath = "/etc/fairlead/agent.yaml"

// Config is the configuration of one node's agent.
type Config struct {
	Node      string `json:"node,omitempty"`      // name in the cluster; default: the host name
	Interface string `json:"interface,omitempty"` // link to other nodes; default: the default route's
	// Addresses are this node's addresses for other nodes, at most one of each family; default: the interface's first.
	Addresses []netip.Addr `json:"addresses,omitempty"`

	Store Store `json:"store,omitzero"`

	// Network is the cluster's default network. The first agent of a cluster writes it to the store. After that, the
	// store's version counts.
	Network *cluster.Network `json:"network,omitempty"`
	// NetworkFile is the path of a file with the default network in flannel's format (net-conf.json).
	NetworkFile string `json:"networkFile,omitempty"`

	Flannel Flannel `json:"flannel,omitzero"`

	// CNI is a network configuration that the agent writes once this node is ready, so that runtimes start containers.
	CNI CNI `json:"cni,omitzero"`

	// PodNetworks lets pods of Kubernetes select several networks. It needs the store kubernetes.
	PodNetworks PodNetworks `json:"podNetworks,omitzero"`

	// Policy keeps network policies in force. It needs the store kubernetes, or a directory with policies.
	Policy Policy `json:"policy,omitzero"`

	// MountNamespace is the path of the mount namespace in which the agent mounts the network namespaces of isolated
	// networks, such as /proc/1/ns/mnt; "": the agent's own. A service with a mount namespace of its own needs it, because
	// its mounts do not reach the host.
	MountNamespace string `json:"mountNamespace,omitempty"`

	// SysctlDir is the directory of the kernel's settings, if /proc/sys is read-only as in a container; "": /proc/sys.
	SysctlDir string `json:"sysctlDir,omitempty"`

	// Listen is the address for /metrics, /healthz and /readyz; "" disables them.
	Listen string `json:"listen,omitempty"`

	// Grace is the time for which the blocks of a removed node stay reserved.
	Grace Duration `json:"grace,omitzero"`
}

// Store locates the cluster's state: in the Kubernetes API or in etcd if they are set, or else in a file on this host.
type Store struct {
	File       string     `json:"file,omitempty"`
	Etcd       Etcd       `json:"etcd,omitzero"`
	Kubernetes Kubernetes `json:"kubernetes,omitzero"`
}

// IsFile reports whether the store is a file on this host.
func (s *Store) IsFile() bool { return len(s.Etcd.Endpoints) == 0 && s.Kubernetes.Kubeconfig == "" }

// Kubernetes configures the connection to the Kubernetes API.
type Kubernetes struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // path; InCluster: the service account of this pod; "": no Kubernetes
	Namespace  string `json:"namespace,omitempty"`  // of the agents' Leases; default: DefaultNamespace
}

// DefaultNamespace is the namespace of the agents' Leases.
const DefaultNamespace = "fairlead-system"

// InCluster as Kubernetes.Kubeconfig stands for the service account of the pod that the program runs in.
const InCluster = "in-cluster"

// Etcd configures the connection to etcd.
type Etcd struct {
	Endpoints    []string `json:"endpoints,omitempty"` // "https://10.0.0.1:2379"
	Prefix       string   `json:"prefix,omitempty"`    // of all keys; default "/fairlead/"
	CACert       string   `json:"caCert,omitempty"`    // paths of PEM files
	Cert         string   `json:"cert,omitempty"`
	Key          string   `json:"key,omitempty"`
	Username     string   `json:"username,omitempty"`
	PasswordFile string   `json:"passwordFile,omitempty"`
}

// problem reports a configuration of etcd that names no member: the store would be a file, and the cluster this host only.
func (e *Etcd) problem() error {
	secured := e.CACert != "" || e.Cert != "" || e.Key != "" || e.Username != "" || e.PasswordFile != ""
	if len(e.Endpoints) == 0 && (e.Endpoints != nil || secured) {
		return errors.New("store.etcd.endpoints is empty: want the URLs of the etcd members, or no other settings of etcd")
	}
	return nil
}

// Flannel configures the agent for a cluster that uses, or used, flannel.
type Flannel struct {
	// SubnetFile is the file that the agent writes for the flannel plugin; "": none.
	SubnetFile string `json:"subnetFile,omitempty"`
	// Prefix is the prefix of flannel's keys in etcd, or of its annotations in Kubernetes. If set, flannel's nodes and this
	// node become peers.
	Prefix string `json:"prefix,omitempty"`
}

// FlannelInEtcd reports whether flannel's leases are keys in etcd.
func (c *Config) FlannelInEtcd() bool {
	return c.Flannel.Prefix != "" && c.Store.Kubernetes.Kubeconfig == ""
}

// CNI is a network configuration list and the file to write it to.
type CNI struct {
	File string          `json:"file,omitempty"` // "/etc/cni/net.d/10-pods.conflist"; "": write no file
	List json.RawMessage `json:"list,omitempty"` // content of the file
	Fuse bool            `json:"fuse,omitempty"` // run all plugins of the list in one process, a fairlead-chain
}

// PodNetworks configures pods with several networks.
type PodNetworks struct {
	// Enabled makes the agent follow NetworkAttachmentDefinitions, publish the networks of pods, and write the list in CNI
	// inside a fairlead-pod.
	Enabled bool   `json:"enabled,omitempty"`
	Kubelet string `json:"kubelet,omitempty"` // the kubelet's pod-resources socket; default: DefaultKubelet
}

// Policy configures network policy.
type Policy struct {
	// Enabled makes the agent follow network policies, and drop what they do not allow.
	Enabled bool `json:"enabled,omitempty"`
	// Directory has the policies in files, for the containers of this host; "": the policies are in the store.
	Directory string `json:"directory,omitempty"`
}

// problem returns what is wrong.
func (p Policy) problem(kubeconfig string) error {
	switch {
	case p.Directory != "" && !p.Enabled:
		return errors.New("policy.directory is set, and policy.enabled is not true: set it, or remove the directory")
	case p.Directory != "" && kubeconfig != "":
		return errors.New("policy.directory is set, and so is store.kubernetes.kubeconfig: with Kubernetes, network policies are in its API")
	case p.Directory != "" && !filepath.IsAbs(p.Directory):
		return fmt.Errorf("policy.directory %q: want an absolute path", p.Directory)
	}
	return nil
}

// DefaultKubelet is the kubelet's pod-resources socket.
const DefaultKubelet = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Duration is a time.Duration written as "5m".
type Duration time.Duration

// UnmarshalText parses a duration such as "5m". Zero is an error: it would mean the default.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v <= 0 {
		return fmt.Errorf(`%q is not a duration above zero: want one like "5m"`, b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText formats a duration as "5m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// DefaultGrace is the default of Config.Grace.
const DefaultGrace = 5 * time.Minute

// Load reads the file, then the environment, then fills in what is absent. The settings in empty are absent, whatever
// the file and the environment say. A file that does not exist is no error if the path is the default.
func Load(path string, getenv func(string) string, empty ...Setting) (*Config, error) {
	c := &Config{}
	doc := &yaml.Node{}
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && path == DefaultPath:
	case err != nil:
		return nil, fmt.Errorf("read the agent's configuration: %w", err)
	default:
		if doc, err = parse(path, raw, c); err != nil {
			return nil, err
		}
		if c.Network != nil { // an error here names the file, which the environment may replace below
			c.Network.Name = cluster.DefaultNetwork
			if err := c.Network.Check(); err != nil {
				return nil, invalid(locate(path, doc, "network", err))
			}
		}
		if err := c.checkList(path, doc); err != nil {
			return nil, invalid(err)
		}
	}
	if err := c.environment(getenv); err != nil {
		return nil, err
	}
	if err := c.emptyStore(path, doc); err != nil {
		return nil, invalid(err)
	}
	for _, s := range empty {
		if err := s.set(c, ""); err != nil {
			return nil, invalid(&SettingError{s, "", err})
		}
	}
	return c, invalid(c.complete(getenv))
}

// emptyStore reports "etcd: {}" or "kubernetes: {}" without an environment variable that says where the store is.
// Otherwise the store would be a file, and the cluster this host only.
func (c *Config) emptyStore(path string, doc *yaml.Node) error {
	var errs []error
	for _, s := range []struct {
		key, want string
		missing   bool
	}{
		{"store.etcd", "endpoints, the URLs of the etcd members", len(c.Store.Etcd.Endpoints) == 0},
		{"store.kubernetes", "kubeconfig, the path of a file or " + InCluster, c.Store.Kubernetes.Kubeconfig == ""},
	} {
		if s.missing && isEmptyMapping(doc, s.key) {
			errs = append(errs, at(path, doc, s.key, fmt.Errorf("%s is {}: want %s, or no %s", s.key, s.want, s.key)))
		}
	}
	return errors.Join(errs...)
}

func inFile(file string, err error) error {
	if err == nil || file == "" {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}

// complete fills in defaults and validates the configuration.
func (c *Config) complete(getenv func(string) string) error {
	if c.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("node is absent, and the host has no name: %w", err)
		}
		c.Node = strings.ToLower(name)
	}
	c.Store.Etcd.Prefix = strings.TrimSuffix(cmp.Or(c.Store.Etcd.Prefix, "/fairlead/"), "/") + "/"
	if c.Store.Kubernetes.Namespace == "" {
		c.Store.Kubernetes.Namespace = DefaultNamespace
	}
	if c.Store.File == "" {
		c.Store.File = DefaultStore(getenv)
	}
	if c.PodNetworks.Kubelet == "" {
		c.PodNetworks.Kubelet = DefaultKubelet
	}
	if c.Grace == 0 {
		c.Grace = Duration(DefaultGrace)
	}
	if c.NetworkFile != "" && c.Network != nil {
		return errors.New("network and networkFile are both set: want one; networkFile is the network in flannel's form")
	}
	if c.NetworkFile != "" {
		n, err := readNetConf(c.NetworkFile)
		if err != nil {
			return err
		}
		c.Network = n
	}
	if c.Network != nil {
		c.Network.Name = cluster.DefaultNetwork
	}
	return c.validate()
}

// DefaultStore is the file that is the store where no store is named.
func DefaultStore(getenv func(string) string) string {
	return filepath.Join(lib(getenv), "fairlead", "store")
}

func lib(getenv func(string) string) string {
	if dir := getenv("FAIRLEAD_LIB"); dir != "" {
		return dir
	}
	return "/var/lib/cni"
}

func (c *Config) validate() error {
	var errs []error
	if err := cluster.CheckNodeName(c.Node); err != nil {
		errs = append(errs, fmt.Errorf("node is %q: %w", c.Node, err))
	}
	six := map[bool]bool{}
	for _, a := range c.Addresses {
		if !a.IsValid() || six[a.Is6()] {
			errs = append(errs, fmt.Errorf("addresses has %s: want at most one of this host's addresses for each family", a))
		} else if err := cluster.CheckNodeAddress(a); err != nil {
			errs = append(errs, fmt.Errorf("addresses: %w", err))
		}
		six[a.Is6()] = true
	}
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			errs = append(errs, fmt.Errorf(`listen is %q: want an address and a port, like "127.0.0.1:9479"`, c.Listen))
		}
	}
	if (c.CNI.File == "") != (c.CNI.List == nil) {
		errs = append(errs, errors.New("cni has only one of file and list: want both, or neither"))
	}
	if c.CNI.List != nil {
		errs = append(errs, CheckList(c.CNI.List))
	}
	if c.FlannelInEtcd() && len(c.Store.Etcd.Endpoints) == 0 {
		errs = append(errs, errors.New("flannel.prefix is set without store.etcd.endpoints or store.kubernetes.kubeconfig: flannel keeps its subnets in etcd or in Kubernetes"))
	}
	errs = append(errs, c.Store.Etcd.problem())
	if c.Store.Kubernetes.Kubeconfig != "" && len(c.Store.Etcd.Endpoints) > 0 {
		errs = append(errs, errors.New("store.kubernetes.kubeconfig and store.etcd.endpoints are both set: want one store"))
	}
	if c.PodNetworks.Enabled && c.Store.Kubernetes.Kubeconfig == "" {
		errs = append(errs, errors.New("podNetworks.enabled is true without store.kubernetes.kubeconfig: NetworkAttachmentDefinitions are in the Kubernetes API"))
	}
	errs = append(errs, c.Policy.problem(c.Store.Kubernetes.Kubeconfig))
	if c.Network != nil {
		errs = append(errs, c.Network.Check())
		if c.Network.Isolated {
			errs = append(errs, errors.New(`network.isolated is true: the default network cannot be isolated; "fairlead network create" creates an isolated network`))
		}
	}
	return errors.Join(errs...)
}

// checkList returns an error with its position if the file's list is invalid.
func (c *Config) checkList(path string, doc *yaml.Node) error {
	if c.CNI.List == nil {
		return nil
	}
	err := CheckList(c.CNI.List)
	if err == nil {
		return nil
	}
	key := "cni.list"
	if e, ok := errors.AsType[*cni.ConfigError](err); ok {
		key = e.Key
	}
	return at(path, doc, key, err)
}

// CheckList returns an error unless a text is a valid network configuration list with a name and plugins.
func CheckList(raw json.RawMessage) error {
	var list struct {
		Name    string            `json:"name"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if json.Unmarshal(raw, &list) != nil || list.Name == "" || len(list.Plugins) == 0 {
		return fmt.Errorf("cni.list: %.100s is not a network configuration list: want an object with name and plugins", raw)
	}
	_, err := libcni.ConfListFromBytes(raw)
	if e, ok := errors.AsType[*cni.ConfigError](err); ok {
		e.Key, e.Line = strings.TrimSuffix("cni.list."+e.Key, "."), 0 // the line of the JSON form
		return e
	}
	return err
}
