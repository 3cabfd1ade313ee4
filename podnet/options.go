package podnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
)

// The defaults of Options.
const (
	DefaultConfDir      = "/etc/cni/net.d"
	DefaultPluginDir    = "/opt/cni/bin"
	DefaultStateDir     = attach.DefaultRoot + "/pods"
	DefaultTimeout      = 2 * time.Minute
	DefaultCleanUpTime  = time.Minute
	DefaultParallel     = 4
	DefaultIfNamePrefix = "eth"
)

// Options are those of a Manager; the zero value is a node's as it usually is.
type Options struct {
	// ConfDirs are the directories of network configurations. Networks are in the
	// order of the directories, then of the files' names; the first is the default
	// network. Of two that have one name the first counts.
	ConfDirs []string
	// DefaultNetwork is the name of the default network in place of the first.
	DefaultNetwork string
	// Lookup finds networks that are in no directory, such as those of
	// NetworkAttachmentDefinitions, which have a namespace; nil: there are none.
	// Its error is os.ErrNotExist for one that it does not know either.
	Lookup func(ctx context.Context, namespace, name string) (*libcni.NetworkConfigList, error)

	PluginDirs []string    // where plugins are looked for (CNI_PATH)
	Exec       libcni.Exec // runs plugins; nil: as processes
	CacheDir   string      // of libcni; "": libcni.CacheDir
	StateDir   string      // the notes of pods: see Pod.ID; worth nothing after a reboot
	RunDir     string      // the records of Fairlead's plugins; "": attach.DefaultRoot

	// Timeout bounds an operation on a pod whose context ends later or never.
	Timeout time.Duration
	// CleanUpTime bounds the undoing of a set-up that failed, and the end of a
	// tear-down whose context ended in the middle: such work has this time of its
	// own, whatever the caller's context says.
	CleanUpTime time.Duration
	// Parallel is how many networks of one pod are set up at once: see SetUpPod. 1
	// is one after the other, on the caller's goroutine.
	Parallel int
	// NoLoopback leaves lo of a pod as it is.
	NoLoopback bool

	// LeaveUnsupported makes a warning of the error that a pod asks a network for
	// what no plugin of it declares.
	LeaveUnsupported bool
	// RemoveLeft removes what plugins made of an attachment for which neither a
	// note nor a configuration is left; nil: that is an error.
	RemoveLeft func(ctx context.Context, left Left) error

	// Observers are told of every step.
	Observers []Observer
	// Warn gets what does not stop an operation; nil: it is logged.
	Warn func(msg string, err error)
}

// Left is an attachment without a configuration.
type Left struct {
	ContainerID string
	Network     string
	IfName      string
	Netns       string // "": gone
}

func (o *Options) complete() error {
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
