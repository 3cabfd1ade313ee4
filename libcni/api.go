package libcni

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
)

// CacheDir is the default directory of the attachment cache.
const CacheDir = "/var/lib/cni"

// ErrorCheckNotSupp is the error of CHECK for a configuration before 0.4.0.
var ErrorCheckNotSupp = errors.New("does not support the CHECK command")

// Exec finds and runs plugins, as processes or in process.
type Exec = invoke.Exec

// RuntimeConf is a runtime's configuration of one attachment.
type RuntimeConf struct {
	ContainerID string
	NetNS       string // path
	IfName      string
	Args        [][2]string // CNI_ARGS
	// CapabilityArgs become the runtimeConfig of the plugins that declare the capability.
	CapabilityArgs map[string]any
	CacheDir       string // used if the CNIConfig has none
}

// NetworkConfig is the configuration of one plugin.
type NetworkConfig struct {
	Network *cni.PluginConf
	Bytes   []byte // as written

	origin *origin // nil: no file
}

// PluginConfig is the newer name of NetworkConfig.
type PluginConfig = NetworkConfig

// NetworkConfigList is a network: plugins that run one after the other.
type NetworkConfigList struct {
	Name                   string
	CNIVersion             string // negotiated if the configuration lists cniVersions
	DisableCheck           bool
	DisableGC              bool
	LoadOnlyInlinedPlugins bool
	Plugins                []*NetworkConfig
	Bytes                  []byte // as written
}

// NetworkAttachment is the cached data of an attachment.
type NetworkAttachment struct {
	ContainerID    string
	Network        string
	IfName         string
	Config         []byte
	NetNS          string
	CniArgs        [][2]string
	CapabilityArgs map[string]any
}

// GCArgs has the attachments that GC must keep.
type GCArgs struct {
	ValidAttachments []cni.Attachment
	// Listed is the time at which the caller began to collect the valid attachments. GC keeps attachments that were added
	// later. The zero time means the time of the call.
	Listed time.Time
	// Lock, if set, keeps other processes from adding or deleting an attachment until unlock. GC calls it before the DEL of
	// a cached attachment that is not valid: another process may be adding the container again.
	Lock func(ctx context.Context, at cni.Attachment) (unlock func(), err error)
}

// CNI has the operations of a runtime.
type CNI interface {
	AddNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) (*cni.Result, error)
	CheckNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) error
	DelNetworkList(ctx context.Context, net *NetworkConfigList, rt *RuntimeConf) error
	GetNetworkListCachedResult(net *NetworkConfigList, rt *RuntimeConf) (*cni.Result, error)
	GetNetworkListCachedConfig(net *NetworkConfigList, rt *RuntimeConf) ([]byte, *RuntimeConf, error)

	AddNetwork(ctx context.Context, net *NetworkConfig, rt *RuntimeConf) (*cni.Result, error)
	CheckNetwork(ctx context.Context, net *NetworkConfig, rt *RuntimeConf) error
	DelNetwork(ctx context.Context, net *NetworkConfig, rt *RuntimeConf) error
	GetNetworkCachedResult(net *NetworkConfig, rt *RuntimeConf) (*cni.Result, error)
	GetNetworkCachedConfig(net *NetworkConfig, rt *RuntimeConf) ([]byte, *RuntimeConf, error)

	ValidateNetworkList(ctx context.Context, net *NetworkConfigList) ([]string, error)
	ValidateNetwork(ctx context.Context, net *NetworkConfig) ([]string, error)

	GCNetworkList(ctx context.Context, net *NetworkConfigList, args *GCArgs) error
	GetStatusNetworkList(ctx context.Context, net *NetworkConfigList) error

	GetCachedAttachments(containerID string) ([]*NetworkAttachment, error)
	GetVersionInfo(ctx context.Context, pluginType string) (invoke.PluginInfo, error)
}

// CNIConfig runs the operations.
type CNIConfig struct {
	Path []string // directories with plugins, in search order
	// Warn gets problems that do not stop an operation, such as a corrupt cache file. If it is nil, they are logged.
	Warn func(msg string, err error)

	exec     Exec
	cacheDir string
	adding   adding
}

var _ CNI = (*CNIConfig)(nil)

// NewCNIConfig returns a CNIConfig that runs plugins from the directories of path. If exec is nil, it runs them as
// processes, and passes on what they write to standard error.
func NewCNIConfig(path []string, exec Exec) *CNIConfig {
	return NewCNIConfigWithCacheDir(path, "", exec)
}

// NewCNIConfigWithCacheDir is NewCNIConfig with another cache directory.
func NewCNIConfigWithCacheDir(path []string, cacheDir string, exec Exec) *CNIConfig {
	if exec == nil {
		exec = &invoke.RawExec{Stderr: os.Stderr}
	}
	return &CNIConfig{Path: path, cacheDir: cacheDir, exec: exec}
}

func (c *CNIConfig) warn(msg string, err error) {
	if c.Warn != nil {
		c.Warn(msg, err)
		return
	}
	slog.Warn(msg, "err", err)
}

// executor handles a CNIConfig that was created without a constructor.
func (c *CNIConfig) executor() Exec {
	if c.exec == nil {
		return &invoke.RawExec{Stderr: os.Stderr}
	}
	return c.exec
}
