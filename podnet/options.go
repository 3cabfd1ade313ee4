package podnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// These are the defaults of Options.
const (
	DefaultConfDir     = "/etc/cni/net.d"
	DefaultPluginDir   = "/opt/cni/bin"
	DefaultStateDir    = attach.DefaultRoot + "/pods"
	DefaultTimeout     = 2 * time.Minute
	DefaultCleanUpTime = time.Minute
	DefaultParallel    = 4
)

// Options configure a Manager. The zero value fits a typical node.
type Options struct {
	// ConfDirs are the directories of network configurations. Networks are ordered by directory, then by file name, and
	// the first one is the default network. If two have the same name, the first one is used.
	ConfDirs []string
	// DefaultNetwork is the name of the default network. "" is the first network.
	DefaultNetwork string
	// Lookup finds networks outside the directories, such as NetworkAttachmentDefinitions, which have a namespace. It
	// may be nil. It returns os.ErrNotExist for an unknown network.
	Lookup func(ctx context.Context, namespace, name string) (*libcni.NetworkConfigList, error)

	PluginDirs []string    // directories of plugins (CNI_PATH)
	Exec       libcni.Exec // runs plugins; nil: as processes
	CacheDir   string      // libcni's cache; "": libcni.CacheDir
	StateDir   string      // state of pods, see Pod.ID; it is valid until the next reboot
	RunDir     string      // records of Fairlead's plugins; "": attach.DefaultRoot

	// Timeout limits an operation on a pod, even if its context ends later or never.
	Timeout time.Duration
	// CleanUpTime limits the rollback of a failed set-up, and the rest of a tear-down whose context ended. This work
	// gets the full time even after the caller's context has ended.
	CleanUpTime time.Duration
	// Parallel limits how many networks of one pod are set up at once, see SetUpPod. With 1 they are set up in order on
	// the caller's goroutine.
	Parallel int
	// NoLoopback leaves the pod's lo unchanged.
	NoLoopback bool

	// IgnoreUnsupported makes a request that no plugin of the network declares a warning instead of an error, and also an
	// address that a plugin ignores although it got the request.
	IgnoreUnsupported bool
	// RemoveLeftover removes an attachment of which neither the state nor a configuration exists. If it is nil, such an
	// attachment is an error.
	RemoveLeftover func(ctx context.Context, left Leftover) error

	// Observers observe every step.
	Observers []Observer
	// Warn receives problems that do not stop an operation. If it is nil, they are logged.
	Warn func(msg string, err error)
}

// Leftover is an attachment without a configuration.
type Leftover struct {
	ContainerID string
	Network     string
	IfName      string
	Netns       string // "" if it is gone
}

func (o *Options) complete() error {
	o.ConfDirs = slices.DeleteFunc(slices.Clone(o.ConfDirs), func(dir string) bool { return dir == "" }) // not the current one
	if len(o.ConfDirs) == 0 {
		o.ConfDirs = []string{DefaultConfDir}
	}
	for i, dir := range o.ConfDirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("configuration directory %q: %w", dir, err)
		}
		o.ConfDirs[i] = abs
	}
	if len(o.PluginDirs) == 0 {
		o.PluginDirs = []string{DefaultPluginDir}
	}
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir
	}
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.CleanUpTime == 0 {
		o.CleanUpTime = DefaultCleanUpTime
	}
	if o.Warn == nil {
		o.Warn = func(msg string, err error) { slog.Warn(msg, "err", err) }
	}
	if o.Parallel < 0 || o.Timeout < 0 || o.CleanUpTime < 0 {
		return errors.New("podnet: Parallel, Timeout and CleanUpTime must not be negative")
	}
	if o.DefaultNetwork != "" {
		return cni.ValidateNetworkName(o.DefaultNetwork)
	}
	return nil
}
